package driver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-vm/slipway/runtime/hostpath/driver"
	"github.com/slipway-vm/slipway/runtime/hostpath/loopdev"
)

// places says where the pools of a driver are.
type places map[string]driver.Place

func (p places) Pools() map[string]driver.Place { return p }

func at(t *testing.T, known places) *driver.Driver {
	t.Helper()
	return driver.New(driver.Options{
		Name: "kubevirt.io.hostpath-provisioner", Version: "test", NodeName: "node-1",
		TopologyKey: "topology.hostpath.csi/node", KubeletRoot: t.TempDir(), HostRoot: "/", Pools: known,
		Devices: loopdev.Devices{Dir: "/dev", Sys: "/sys"}, Log: logr.Discard(),
	})
}

func TestAPoolOnAClaimIsThereOnlyWhileTheClaimIsMounted(t *testing.T) {
	needsRoot(t)
	claim := filepath.Join(t.TempDir(), "mount")
	check(t, os.Mkdir(claim, 0o755))
	known := places{"claims": {Claim: "slipway/hpp-pool-claims-node-1"}}
	d := at(t, known)
	waits := func(when string) {
		t.Helper()
		_, err := d.CreateVolume(t.Context(), asked("pvc-1", false))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "storage pool claims lies on the claim slipway/hpp-pool-claims-node-1, which is not mounted on node node-1") {
			t.Errorf("%s: got %v", when, err)
		}
		if found, _ := filepath.Glob(filepath.Join(claim, "*")); len(found) > 0 {
			t.Errorf("%s the kubelet's own disk got %v", when, found)
		}
	}
	waits("before there is a pod")
	known["claims"] = driver.Place{Claim: "slipway/hpp-pool-claims-node-1", Path: claim + "-gone", Mount: true}
	waits("after the kubelet removed the folder")
	known["claims"] = driver.Place{Claim: "slipway/hpp-pool-claims-node-1", Path: claim, Mount: true}
	waits("before it is mounted")
	check(t, unix.Mount("tmpfs", claim, "tmpfs", 0, "size=64m"))
	_, err := d.CreateVolume(t.Context(), asked("pvc-1", false))
	check(t, err)
	if _, err := os.Stat(filepath.Join(claim, "pvc-1")); err != nil {
		t.Error(err)
	}
	_, err = d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "pvc-1"})
	check(t, err)
	check(t, unix.Unmount(claim, 0))
	waits("when it is mounted no more")
}

func TestAnotherPodThatHoldsAClaimSweepsNothing(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	check(t, os.Mkdir(first, 0o755))
	check(t, os.Symlink(first, second)) // one claim in two pods
	known := places{"claims": {Claim: "slipway/hpp-pool-claims-node-1", Path: first}}
	d := at(t, known)
	_, err := d.CreateVolume(t.Context(), asked("pvc-1", false))
	check(t, err)
	draft := filepath.Join(first, ".slipway/new/pvc-2") // a copy that is being made
	check(t, os.Mkdir(draft, 0o755))
	known["claims"] = driver.Place{Claim: "slipway/hpp-pool-claims-node-1", Path: second}
	_, err = d.CreateVolume(t.Context(), asked("pvc-3", false))
	check(t, err)
	if _, err := os.Stat(draft); err != nil {
		t.Errorf("what was being made is gone: %v", err)
	}
}

func TestThePoolBesideLegacyVolumesIsMadeWhereTheyAre(t *testing.T) {
	dir := t.TempDir()
	d := at(t, places{"legacy": {Path: filepath.Join(dir, "csi"), Make: true}})
	_, err := d.CreateVolume(t.Context(), asked("pvc-1", false))
	check(t, err)
	if _, err := os.Stat(filepath.Join(dir, "csi/pvc-1")); err != nil {
		t.Error(err)
	}
	d = at(t, places{"legacy": {Path: filepath.Join(dir, "missing/csi"), Make: true}})
	if _, err := d.CreateVolume(t.Context(), asked("pvc-1", false)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v", err)
	}
}
