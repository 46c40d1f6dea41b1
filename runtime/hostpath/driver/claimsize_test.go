package driver_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/hostpath/quota"
)

// TestSizesAreRealOnClaims shows it of volumes in a claim whose file system has quotas, and of volumes in
// a claim that is such a volume itself, which is limited as a whole.
func TestSizesAreRealOnClaims(t *testing.T) {
	needsRoot(t)
	disk, beneath := reflinkPool(t), t.TempDir()
	root, err := os.Open(disk)
	check(t, err)
	enforced, err := quota.Enforced(root)
	check(t, errors.Join(err, root.Close()))

	_, err = at(t, places{"claims": {Claim: "slipway/hpp-pool-claims-node-1", Path: disk, Mount: true}}).CreateVolume(t.Context(), asked("pvc-1", false))
	check(t, err)
	claim := filepath.Join(disk, "pvc-1")
	held := func(file string) {
		t.Helper()
		err := fill(file, 64<<20)
		if full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT); full != enforced {
			t.Errorf("writing 64 MiB to %s of a volume of 8 gives %v, quotas %v", file, err, enforced)
		}
		check(t, os.Remove(file))
	}
	held(filepath.Join(claim, "disk.img"))

	check(t, unix.Mount(claim, beneath, "", unix.MS_BIND, ""))
	t.Cleanup(func() { check(t, unix.Unmount(beneath, 0)) })
	nested := at(t, places{"nested": {Claim: "slipway/hpp-pool-nested-node-1", Path: beneath, Mount: true}})
	space, err := nested.GetCapacity(t.Context(), &csi.GetCapacityRequest{})
	if check(t, err); enforced && space.GetMaximumVolumeSize().GetValue() > 64<<20 {
		t.Errorf("a claim of 8 MiB has room for %d bytes", space.GetMaximumVolumeSize().GetValue())
	}
	_, err = nested.CreateVolume(t.Context(), asked("pvc-2", false))
	check(t, err)
	held(filepath.Join(claim, "pvc-2/disk.img"))
}

// fill writes bytes to a new file.
func fill(path string, bytes int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, bytes))
	return errors.Join(err, file.Sync(), file.Close())
}
