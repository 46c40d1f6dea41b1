package hotplug_test

import (
	"reflect"
	"strings"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/hotplug"
)

// spec makes a spec of words: name=claim:bus is a pluggable volume with a disk, name=claim:cdrom the
// disc in a drive, name=:cdrom an empty drive, !name=claim:bus a volume that stays.
func spec(words ...string) *virtv1.VirtualMachineInstanceSpec {
	out := &virtv1.VirtualMachineInstanceSpec{}
	for _, word := range words {
		fixed := strings.HasPrefix(word, "!")
		name, rest, _ := strings.Cut(strings.TrimPrefix(word, "!"), "=")
		claim, bus, _ := strings.Cut(rest, ":")
		disk := virtv1.Disk{Name: name}
		if bus == "cdrom" {
			disk.CDRom = &virtv1.CDRomTarget{Bus: virtv1.DiskBusSATA}
		} else {
			disk.Disk = &virtv1.DiskTarget{Bus: virtv1.DiskBus(bus)}
		}
		out.Domain.Devices.Disks = append(out.Domain.Devices.Disks, disk)
		if claim != "" {
			source := virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: claim, Hotpluggable: !fixed}}
			out.Volumes = append(out.Volumes, virtv1.Volume{Name: name, VolumeSource: source})
		}
	}
	return out
}

func TestARunningMachineFollowsItsTemplate(t *testing.T) {
	for name, c := range map[string]struct {
		running, template []string
		ephemeral         []string
		want              []string
	}{
		"a disk is added":                          {[]string{"!root=r:virtio"}, []string{"!root=r:virtio", "a=x:scsi"}, nil, []string{"!root=r:virtio", "a=x:scsi"}},
		"a disk is removed":                        {[]string{"!root=r:virtio", "a=x:scsi"}, []string{"!root=r:virtio"}, nil, []string{"!root=r:virtio"}},
		"an ephemeral one stays":                   {[]string{"a=x:scsi", "b=y:scsi"}, nil, []string{"a"}, []string{"a=x:scsi"}},
		"another claim takes the place of the one": {[]string{"a=x:scsi"}, []string{"a=y:scsi"}, nil, []string{"a=y:scsi"}},
		"sata waits for a restart":                 {nil, []string{"a=x:sata"}, nil, nil},
		"so does its removal":                      {[]string{"a=x:sata"}, nil, nil, []string{"a=x:sata"}},
		"so does what is not hotpluggable":         {[]string{"!a=x:scsi"}, []string{"!b=y:scsi"}, nil, []string{"!a=x:scsi"}},
		"a disc is put into its drive":             {[]string{"cd=:cdrom"}, []string{"cd=x:cdrom"}, nil, []string{"cd=x:cdrom"}},
		"and taken out":                            {[]string{"cd=x:cdrom"}, []string{"cd=:cdrom"}, nil, []string{"cd=:cdrom"}},
		"a drive comes at the next start":          {nil, []string{"cd=x:cdrom"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			running := spec(c.running...)
			changed := hotplug.Follow(running, spec(c.template...), c.ephemeral)
			want := spec(c.want...)
			if len(running.Volumes) != len(want.Volumes) || len(running.Volumes) > 0 && !reflect.DeepEqual(running.Volumes, want.Volumes) ||
				len(running.Domain.Devices.Disks) != len(want.Domain.Devices.Disks) {
				t.Errorf("got %+v, want %+v", running, want)
			}
			if before := spec(c.running...); changed != (len(running.Volumes) != len(before.Volumes) || !reflect.DeepEqual(running.Volumes, before.Volumes)) {
				t.Errorf("it says changed: %v", changed)
			}
			if hotplug.Follow(running, spec(c.template...), c.ephemeral) {
				t.Error("a second time changes something")
			}
		})
	}
}

func TestWhatComesAndGoesIsNotFixed(t *testing.T) {
	one, other := hotplug.Fixed(spec("!root=r:virtio", "a=x:scsi", "cd=y:cdrom")), hotplug.Fixed(spec("!root=r:virtio", "cd=:cdrom", "b=z:virtio"))
	if !reflect.DeepEqual(one, other) {
		t.Errorf("%+v and %+v differ", one, other)
	}
	if kept := hotplug.Fixed(spec("a=x:sata")); len(kept.Volumes) != 1 {
		t.Errorf("a SATA disk is fixed, got %+v", kept)
	}
}

func TestRequests(t *testing.T) {
	adding := func(name, claim string) hotplug.Request {
		source := &virtv1.HotplugVolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: claim, Hotpluggable: true}}
		return hotplug.Request{Add: &virtv1.AddVolumeOptions{Name: name, VolumeSource: source, Disk: &virtv1.Disk{DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: "scsi"}}}}}
	}
	removing := func(name string) hotplug.Request {
		return hotplug.Request{Remove: &virtv1.RemoveVolumeOptions{Name: name}}
	}
	for name, c := range map[string]struct {
		request   hotplug.Request
		want      []string
		wantError string
	}{
		"a new one":             {request: adding("b", "y"), want: []string{"!root=r:virtio", "a=x:scsi", "b=y:scsi"}},
		"a name twice":          {request: adding("a", "y"), wantError: "Unable to add volume [a] because volume with that name already exists"},
		"a source twice":        {request: adding("b", "x"), wantError: "Unable to add volume source [x] because it already exists"},
		"removed by name":       {request: removing("a"), want: []string{"!root=r:virtio"}},
		"removed by source":     {request: removing("x"), want: []string{"!root=r:virtio"}},
		"one that must stay":    {request: removing("root"), wantError: "Unable to remove volume [root] because it is not hotpluggable"},
		"one that is not there": {request: removing("c"), wantError: "Unable to remove volume [c] because it does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			got := spec("!root=r:virtio", "a=x:scsi")
			err := c.request.Apply(got)
			if c.wantError != "" {
				if err == nil || err.Error() != c.wantError {
					t.Errorf("got %v", err)
				}
				return
			}
			if want := spec(c.want...); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
}
