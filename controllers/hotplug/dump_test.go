package hotplug_test

import (
	"testing"

	"github.com/slipway-vm/slipway/controllers/hotplug"
)

func TestAVolumeForDumpsIsNoDisk(t *testing.T) {
	running, template := spec("!root=r:virtio"), spec("!root=r:virtio")
	hotplug.AddDump(template, "dumps")
	if !hotplug.HasDump(template, "dumps") || hotplug.HasDump(template, "root") || len(template.Domain.Devices.Disks) != 1 {
		t.Errorf("got %+v", template)
	}
	if hotplug.Follow(running, template, nil) || len(running.Volumes) != 1 {
		t.Errorf("the instance took the volume from its template: %+v", running)
	}
	hotplug.AddDump(running, "dumps")
	if hotplug.Follow(running, spec("!root=r:virtio"), nil) || !hotplug.HasDump(running, "dumps") {
		t.Errorf("the instance lost the volume with its template: %+v", running)
	}
	if fixed := hotplug.Fixed(running); len(fixed.Volumes) != 1 || fixed.Volumes[0].Name != "root" {
		t.Errorf("the volume is fixed: %+v", fixed)
	}
	hotplug.RemoveDump(running, "root")
	hotplug.RemoveDump(running, "dumps")
	if len(running.Volumes) != 1 || running.Volumes[0].Name != "root" {
		t.Errorf("got %+v", running)
	}
}
