package disks

import (
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
)

func TestADiskHasTheBlocksOfItsFileSystemWhereItIsToMatch(t *testing.T) {
	paths := pod(t)
	file := write(t, filepath.Join(paths.Claims, "like", "disk.img"), 1<<20)
	write(t, filepath.Join(paths.Claims, "plain", "disk.img"), 1<<20)
	write(t, filepath.Join(paths.Claims, "off", "disk.img"), 1<<20)
	machine := vmi(map[string]v1.VolumeSource{"like": dataVolume(), "plain": dataVolume(), "off": dataVolume()})
	for i := range machine.Spec.Domain.Devices.Disks {
		switch disk := &machine.Spec.Domain.Devices.Disks[i]; disk.Name {
		case "like":
			disk.BlockSize = &v1.BlockSize{MatchVolume: &v1.FeatureState{}}
		case "off":
			disk.BlockSize = &v1.BlockSize{MatchVolume: &v1.FeatureState{Enabled: new(false)}}
		}
	}
	got, err := Prepare(paths, Request{VMI: machine, Preallocated: []string{"plain"}})
	if err != nil {
		t.Fatal(err)
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	if want := within(int(stat.Bsize), int(stat.Bsize)); got["like"].Blocks == nil || *got["like"].Blocks != *want {
		t.Errorf("blocks %+v, want %+v", got["like"].Blocks, want)
	}
	if got["plain"].Blocks != nil || got["off"].Blocks != nil {
		t.Errorf("a disk that need not match has blocks %+v, %+v", got["plain"].Blocks, got["off"].Blocks)
	}
	if preallocated := []bool{got["like"].Preallocated, got["plain"].Preallocated}; !slices.Equal(preallocated, []bool{false, true}) {
		t.Errorf("preallocated %v", preallocated)
	}
}

func TestBlocksAreOfSizesThatADiskCanHave(t *testing.T) {
	for name, c := range map[string]struct{ logical, physical, wantLogical, wantPhysical int }{
		"a disk with its own":              {512, 4096, 512, 4096},
		"a disk of large blocks":           {4096, 4096, 4096, 4096},
		"a file system that reads 1 MiB":   {1 << 20, 1 << 20, 4096, 1 << 20},
		"one that reads more than allowed": {4 << 20, 4 << 20, 4096, 2 << 20},
		"one that does not tell":           {0, 0, 512, 512},
	} {
		t.Run(name, func(t *testing.T) {
			want := domain.BlockSizes{Logical: uint(c.wantLogical), Physical: uint(c.wantPhysical)}
			if got := within(c.logical, c.physical); *got != want {
				t.Errorf("got %+v, want %+v", *got, want)
			}
		})
	}
}
