package domain_test

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
)

func TestPlug(t *testing.T) {
	thread := true
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "data", Serial: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}},
		{Name: "fast", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		{Name: "old", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSATA}}},
		{Name: "thread", DedicatedIOThread: &thread, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
	}
	source := domain.Disk{Image: domain.Image{Path: "/proc/1/fd/9/disk.img", Format: domain.FormatRaw}, DirectIO: true}
	for name, c := range map[string]struct {
		disk                string
		taken               []string
		want, wantErrorPart string
	}{
		"a scsi disk takes the first free letter":   {disk: "data", taken: []string{"vda", "sda", "sdc"}, want: "sdb"},
		"a virtio disk counts apart":                {disk: "fast", taken: []string{"sda"}, want: "vda"},
		"sata is fixed when the machine starts":     {disk: "old", wantErrorPart: "use scsi or virtio"},
		"so are threads":                            {disk: "thread", wantErrorPart: "dedicatedIOThread"},
		"a disk that is not in the spec is refused": {disk: "other", wantErrorPart: "add it"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := domain.Plug(vmi, c.disk, source, c.taken)
			if c.wantErrorPart != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErrorPart) {
					t.Fatalf("got error %v, want %q in it", err, c.wantErrorPart)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Target.Dev != c.want || got.Alias.Name != "ua-"+c.disk || got.Source.File.File != source.Path || got.Driver.Cache != "none" {
				t.Errorf("got %+v with target %+v", got, got.Target)
			}
		})
	}
}
