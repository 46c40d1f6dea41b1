package driver_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/hostpath/driver"
	"github.com/slipway-vm/slipway/runtime/hostpath/loopdev"
)

// TestAPodThatHoldsAClaimCanBeReplacedWhileDisksInItAreInUse mounts a claim for a second pod, as the kubelet does,
// and takes it from the first, of which volumes were published.
func TestAPodThatHoldsAClaimCanBeReplacedWhileDisksInItAreInUse(t *testing.T) {
	needsRoot(t)
	disk, dir := reflinkPool(t), t.TempDir()
	const claim = "slipway/hpp-pool-claims-node-1"
	known := places{}
	kubelet := t.TempDir()
	d := driver.New(driver.Options{
		Name: "kubevirt.io.hostpath-provisioner", Version: "test", NodeName: "node-1", TopologyKey: "topology.hostpath.csi/node",
		KubeletRoot: kubelet, HostRoot: "/", Pools: known, Devices: loopdev.Devices{Dir: "/dev", Sys: "/sys"}, Log: logr.Discard(),
	})
	pod := func(name string) string {
		mount := filepath.Join(dir, name)
		check(t, os.Mkdir(mount, 0o755))
		check(t, unix.Mount(disk, mount, "", unix.MS_BIND, ""))
		known["claims"] = driver.Place{Claim: claim, Path: mount, Mount: true}
		return mount
	}
	published := func(name string, block bool) (target string, publish *csi.NodePublishVolumeRequest) {
		target = filepath.Join(kubelet, name)
		return target, &csi.NodePublishVolumeRequest{
			VolumeId: name, TargetPath: target, StagingTargetPath: kubelet, VolumeCapability: asked("", block).VolumeCapabilities[0],
		}
	}

	first := pod("first")
	for name, block := range map[string]bool{"disk": true, "files": false} {
		_, err := d.CreateVolume(t.Context(), asked(name, block))
		check(t, err)
		_, publish := published(name, block)
		_, err = d.NodePublishVolume(t.Context(), publish)
		check(t, err)
	}
	second := pod("second")
	if err := unix.Unmount(first, 0); err != nil {
		t.Errorf("the kubelet cannot take the claim from the first pod: %v", err)
	}
	target, publish := published("disk", true)
	check(t, writeAt(target, "guest", 0))
	_, err := d.NodePublishVolume(t.Context(), publish) // once more, as after a restart of the kubelet: it is the same device
	check(t, err)
	if got := readAt(t, target, 5, 0); got != "guest" {
		t.Errorf("the disk holds %q", got)
	}
	for _, name := range []string{"disk", "files"} {
		_, err := d.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: name, TargetPath: filepath.Join(kubelet, name)})
		check(t, err)
		_, err = d.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: name, StagingTargetPath: kubelet})
		check(t, err)
	}
	if got := readAt(t, filepath.Join(second, "disk"), 5, 0); got != "guest" {
		t.Errorf("the claim holds %q", got)
	}
	check(t, unix.Unmount(second, 0))
}
