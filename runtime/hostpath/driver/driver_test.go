package driver_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestRequestsThatCannotBeMetSayWhatToDo(t *testing.T) {
	n := serve(t, pools{"fast": t.TempDir(), "gone": "/nonexistent/pool"})
	cases := map[string]struct {
		change   func(*csi.CreateVolumeRequest)
		wantCode codes.Code
		want     string
	}{
		"a pool that is not known": {
			func(r *csi.CreateVolumeRequest) { r.Parameters["storagePool"] = "slow" },
			codes.FailedPrecondition, `storage pool "slow" is not on node node-1, which has [fast gone]`,
		},
		"a pool whose directory is missing": {
			func(r *csi.CreateVolumeRequest) { r.Parameters["storagePool"] = "gone" },
			codes.FailedPrecondition, "storage pool gone: the directory /nonexistent/pool does not exist on node node-1",
		},
		"no pool where there are two": {
			func(r *csi.CreateVolumeRequest) { r.Parameters = nil },
			codes.InvalidArgument, "name one of [fast gone] in the StorageClass",
		},
		"a parameter that nobody knows": {
			func(r *csi.CreateVolumeRequest) { r.Parameters["type"] = "thin" },
			codes.InvalidArgument, "parameter type is not supported",
		},
		"a file system of one's choice": {
			func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].GetMount().FsType = "ext4" },
			codes.InvalidArgument, "leave csi.storage.k8s.io/fstype out",
		},
		"mount options": {
			func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities[0].GetMount().MountFlags = []string{"noatime"}
			},
			codes.InvalidArgument, "leave mountOptions out",
		},
		"many nodes": {
			func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
			},
			codes.InvalidArgument, "ask for ReadWriteOnce",
		},
		"more than the pool could ever hold": {
			func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 1 << 60 },
			codes.OutOfRange, "ask for less, or use a larger pool",
		},
		"another node": {
			func(r *csi.CreateVolumeRequest) {
				r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"topology.hostpath.csi/node": "node-2"}}}}
			},
			codes.InvalidArgument, "another node than node-1",
		},
		"a name that leads out of the pool": {
			func(r *csi.CreateVolumeRequest) { r.Name = "../outside" },
			codes.InvalidArgument, "letters, digits",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := asked("pvc-1", false)
			req.Parameters = map[string]string{"storagePool": "fast"}
			tc.change(req)
			_, err := n.CreateVolume(t.Context(), req)
			if status.Code(err) != tc.wantCode || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %v with %q", err, tc.wantCode, tc.want)
			}
		})
	}
}

func TestACloneIntoAnotherPoolIsAnHonestCopy(t *testing.T) {
	n := serve(t, pools{"one": t.TempDir()})
	_, err := n.CreateVolume(t.Context(), asked("pvc-1", true))
	check(t, err)
	check(t, writeAt(filepath.Join(n.pools["one"], "pvc-1"), "golden", 4<<20))
	n.pools["two"] = t.TempDir()
	clone := asked("pvc-2", true)
	clone.Parameters = map[string]string{"storagePool": "two"}
	clone.VolumeContentSource = fromVolume("pvc-1")
	_, err = n.CreateVolume(t.Context(), clone)
	check(t, err)
	if got := readAt(t, filepath.Join(n.pools["two"], "pvc-2"), 6, 4<<20); got != "golden" {
		t.Errorf("the clone holds %q", got)
	}
}

func TestAPoolThatFillsUpLeavesNothingAndAsksForAnotherNode(t *testing.T) {
	needsRoot(t)
	small := t.TempDir()
	check(t, unix.Mount("tmpfs", small, "tmpfs", 0, "size=2m"))
	t.Cleanup(func() { check(t, unix.Unmount(small, 0)) })
	n := serve(t, pools{"large": t.TempDir(), "small": small})
	source := asked("pvc-1", false)
	source.Parameters, source.CapacityRange.RequiredBytes = map[string]string{"storagePool": "large"}, 1<<20
	_, err := n.CreateVolume(t.Context(), source)
	check(t, err)
	check(t, os.WriteFile(filepath.Join(n.pools["large"], "pvc-1/disk.img"), bytes.Repeat([]byte("x"), 4<<20), 0o600))
	clone := asked("pvc-2", false)
	clone.Parameters, clone.CapacityRange.RequiredBytes = map[string]string{"storagePool": "small"}, 1<<20
	clone.VolumeContentSource = fromVolume("pvc-1")
	if _, err := n.CreateVolume(t.Context(), clone); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
	if left, _ := filepath.Glob(filepath.Join(small, ".slipway/new/*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestABlockVolumeKeepsItsDeviceOverARestartOfTheDriver(t *testing.T) {
	needsRoot(t)
	n := serve(t, pools{"fast": t.TempDir()})
	_, err := n.CreateVolume(t.Context(), asked("pvc-1", true))
	check(t, err)
	target := filepath.Join(n.root, "device")
	for range 2 {
		publish := &csi.NodePublishVolumeRequest{
			VolumeId: "pvc-1", TargetPath: target, StagingTargetPath: n.root, VolumeCapability: asked("", true).VolumeCapabilities[0],
		}
		_, err := n.NodePublishVolume(t.Context(), publish)
		check(t, err)
		check(t, writeAt(target, "guest", 0))
		n.Driver = n.restarted()
	}
	attached, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	check(t, err)
	count := 0
	for _, file := range attached {
		content, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(string(content), n.pools["fast"]) {
			count++
		}
	}
	if count != 1 {
		t.Errorf("the volume has %d devices", count)
	}
	// The device still holds what the guest wrote; the clone has it nevertheless.
	clone := asked("pvc-2", true)
	clone.VolumeContentSource = fromVolume("pvc-1")
	_, err = n.CreateVolume(t.Context(), clone)
	check(t, err)
	if got := readAt(t, filepath.Join(n.pools["fast"], "pvc-2"), 5, 0); got != "guest" {
		t.Errorf("the clone holds %q", got)
	}
	_, err = n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: target})
	check(t, err)
	_, err = n.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "pvc-1", StagingTargetPath: n.root})
	check(t, err)
	_, err = n.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "pvc-1"})
	check(t, err)
}

func TestADeletionOfASnapshotThatACrashCutShortIsFinished(t *testing.T) {
	n := serve(t, pools{"fast": t.TempDir()})
	_, err := n.CreateVolume(t.Context(), asked("pvc-1", true))
	check(t, err)
	taken, err := n.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: "pvc-1"})
	check(t, err)
	own := filepath.Join(n.pools["fast"], ".slipway")
	check(t, os.MkdirAll(filepath.Join(own, "trash"), 0o700))
	check(t, os.Rename(filepath.Join(own, "snapshots/snapshot-1"), filepath.Join(own, "trash/snapshot-1@1")))
	_, err = n.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: taken.GetSnapshot().GetSnapshotId()})
	check(t, err)
	for _, left := range []string{"trash/*", "snapshots/*", "snapshot-records/*"} {
		if found, _ := filepath.Glob(filepath.Join(own, left)); len(found) != 0 {
			t.Errorf("left: %v", found)
		}
	}
	_, err = n.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: "a/name that was never one"})
	check(t, err)
}

func TestASnapshotThatIsReadIsNotDeleted(t *testing.T) {
	n := serve(t, pools{"fast": t.TempDir()})
	_, err := n.CreateVolume(t.Context(), asked("pvc-1", false))
	check(t, err)
	disk := filepath.Join(n.pools["fast"], "pvc-1", "disk.img")
	check(t, os.WriteFile(disk, bytes.Repeat([]byte("x"), 64<<20), 0o600))
	_, err = n.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: "pvc-1"})
	check(t, err)
	restored := make(chan error)
	go func() {
		restore := asked("pvc-2", false)
		restore.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "snapshot-1"},
		}}
		_, err := n.CreateVolume(t.Context(), restore)
		restored <- err
	}()
	for { // until the deletion, which is asked for again and again, comes through
		_, err := n.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: "snapshot-1"})
		if err == nil {
			break
		}
		if status.Code(err) != codes.Aborted {
			t.Fatal(err)
		}
	}
	switch err := <-restored; status.Code(err) {
	case codes.OK: // the restore came first, and is whole
		info, err := os.Stat(filepath.Join(n.pools["fast"], "pvc-2", "disk.img"))
		if check(t, err); info.Size() != 64<<20 {
			t.Errorf("the restored file has %d bytes", info.Size())
		}
	case codes.NotFound, codes.Aborted: // the deletion came first
		if _, err := os.Stat(filepath.Join(n.pools["fast"], "pvc-2")); !os.IsNotExist(err) {
			t.Errorf("half a volume is left: %v", err)
		}
	default:
		t.Error(err)
	}
}

func TestPublishKeepsToTheKubeletsDirectory(t *testing.T) {
	n := serve(t, pools{"fast": t.TempDir()})
	for _, target := range []string{"/etc", n.root, n.root + "/../x", n.root + "x/y", "relative"} {
		_, err := n.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
			VolumeId: "pvc-1", TargetPath: target, VolumeCapability: asked("", false).VolumeCapabilities[0],
		})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("publishing at %s gives %v", target, err)
		}
	}
}

// asked is a request for a volume of 8 MiB, in the only pool.
func asked(name string, block bool) *csi.CreateVolumeRequest {
	capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER}}
	capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}
	if block {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	return &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability}, CapacityRange: &csi.CapacityRange{RequiredBytes: 8 << 20},
	}
}

func fromVolume(name string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: name}}}
}

func writeAt(path, content string, offset int64) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt([]byte(content), offset)
	return err
}

func readAt(t *testing.T, path string, length int, offset int64) string {
	t.Helper()
	file, err := os.Open(path)
	check(t, err)
	defer file.Close()
	data := make([]byte, length)
	_, err = file.ReadAt(data, offset)
	check(t, err)
	return string(data)
}
