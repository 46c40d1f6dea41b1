package disks

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/fixture/need"
)

func TestTheDiskOfAnExpandedClaimGrowsAtTheNextStart(t *testing.T) {
	cases := map[string]struct {
		size     int // of the disk
		capacity int64
		source   v1.VolumeSource
		disc     bool
		want     int64
	}{
		"expanded":              {1 << 20, 4<<20 + 5, dataVolume(), false, 4 << 20},
		"as large as the claim": {4 << 20, 4 << 20, dataVolume(), false, 4 << 20},
		"larger than the claim": {4 << 20, 1 << 20, dataVolume(), false, 4 << 20},
		"of a claim of no size": {512, 0, dataVolume(), false, 512},
		"a disc":                {1 << 20, 4 << 20, dataVolume(), true, 1 << 20},
		"only read":             {1 << 20, 4 << 20, claimVolume(true), false, 1 << 20},
		"named as a claim":      {1 << 20, 4 << 20, claimVolume(false), false, 4 << 20},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			paths := pod(t)
			write(t, filepath.Join(paths.Claims, "v", "disk.img"), tc.size)
			machine := vmi(map[string]v1.VolumeSource{"v": tc.source})
			if tc.disc {
				machine.Spec.Domain.Devices.Disks[0].CDRom = &v1.CDRomTarget{}
			}
			got, err := Prepare(paths, Request{VMI: machine, ClaimSizes: map[string]int64{"v": tc.capacity}})
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(filepath.Join(paths.Claims, "v", "disk.img"))
			if err != nil || got["v"].Size != tc.want || info.Size() != tc.want {
				t.Errorf("the disk is told as %d bytes and has %d (%v), want %d", got["v"].Size, info.Size(), err, tc.want)
			}
		})
	}
}

func TestTheDiskLeavesRoomToAFileSystemOfItsOwn(t *testing.T) {
	need.Root(t, "mount")
	paths := pod(t)
	dir := filepath.Join(paths.Claims, "v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=99m"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	write(t, filepath.Join(dir, "disk.img"), 1<<20)
	got, err := Prepare(paths, Request{VMI: vmi(map[string]v1.VolumeSource{"v": dataVolume()}), ClaimSizes: map[string]int64{"v": 100 << 20}})
	if err != nil || got["v"].Size != 94<<20 {
		t.Errorf("the disk has %d bytes, %v", got["v"].Size, err)
	}
}

func claimVolume(readOnly bool) v1.VolumeSource {
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ReadOnly = readOnly
	return v1.VolumeSource{PersistentVolumeClaim: source}
}
