package driver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestABlockVolumeInUseGrowsWithItsDevice(t *testing.T) {
	needsRoot(t)
	n := serve(t, pools{"fast": t.TempDir()})
	_, err := n.CreateVolume(t.Context(), asked("pvc-1", true))
	check(t, err)
	target := filepath.Join(n.root, "device")
	publish := &csi.NodePublishVolumeRequest{VolumeId: "pvc-1", TargetPath: target, VolumeCapability: asked("", true).VolumeCapabilities[0]}
	_, err = n.NodePublishVolume(t.Context(), publish)
	check(t, err)
	user, err := os.OpenFile(target, os.O_RDWR, 0)
	check(t, err)
	defer user.Close()

	grown, err := n.ControllerExpandVolume(t.Context(), larger("pvc-1", 15<<20+1))
	check(t, err)
	if grown.GetCapacityBytes() != 16<<20 || grown.GetNodeExpansionRequired() {
		t.Errorf("got %v", grown)
	}
	_, err = user.WriteAt([]byte("guest"), 16<<20-512)
	check(t, err)

	// A crash after the disk grew and before its device did: the next attempt, and each publish, completes it.
	check(t, os.Truncate(filepath.Join(n.pools["fast"], "pvc-1"), 32<<20))
	n.Driver = n.restarted()
	_, err = n.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: "pvc-1", VolumePath: target, CapacityRange: &csi.CapacityRange{RequiredBytes: 32 << 20},
	})
	check(t, err)
	_, err = user.WriteAt([]byte("guest"), 32<<20-512)
	check(t, err)
	check(t, user.Sync())

	clone := asked("pvc-2", true)
	clone.VolumeContentSource, clone.CapacityRange.RequiredBytes = fromVolume("pvc-1"), 32<<20
	_, err = n.CreateVolume(t.Context(), clone)
	check(t, err)
	if got := readAt(t, filepath.Join(n.pools["fast"], "pvc-2"), 5, 32<<20-512); got != "guest" {
		t.Errorf("the clone holds %q", got)
	}
	_, err = n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: target})
	check(t, err)
	check(t, user.Close())
	_, err = n.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "pvc-1", StagingTargetPath: n.root})
	check(t, err)
}

func TestExpansionsThatCannotBeSayWhatToDo(t *testing.T) {
	n := serve(t, pools{"fast": t.TempDir()})
	_, err := n.CreateVolume(t.Context(), asked("pvc-1", false))
	check(t, err)
	limited := larger("pvc-1", 1<<20)
	limited.CapacityRange.LimitBytes = 2 << 20
	for name, tc := range map[string]struct {
		req  *csi.ControllerExpandVolumeRequest
		code codes.Code
		want string
	}{
		"more than the pool could ever hold": {larger("pvc-1", 1<<60), codes.OutOfRange, "ask for less, or use a larger pool"},
		"less than it has":                   {limited, codes.OutOfRange, "cannot shrink"},
		"a volume that is not there":         {larger("pvc-9", 1<<20), codes.NotFound, "pvc-9"},
		"no size":                            {&csi.ControllerExpandVolumeRequest{VolumeId: "pvc-1"}, codes.InvalidArgument, "no size"},
		"a name that leads out of the pool":  {larger("../pvc-1", 1<<20), codes.InvalidArgument, "letters, digits"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := n.ControllerExpandVolume(t.Context(), tc.req)
			if status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %v with %q", err, tc.code, tc.want)
			}
		})
	}
	same, err := n.ControllerExpandVolume(t.Context(), larger("pvc-1", 1<<20))
	if check(t, err); same.GetCapacityBytes() != 8<<20 {
		t.Errorf("a size that it has already gives %d", same.GetCapacityBytes())
	}
}

func TestPoolsOfOneFileSystemCountOnce(t *testing.T) {
	first := t.TempDir()
	n := serve(t, pools{"one": first})
	alone, err := n.GetCapacity(t.Context(), &csi.GetCapacityRequest{})
	check(t, err)
	n.pools["two"] = t.TempDir()
	both, err := n.GetCapacity(t.Context(), &csi.GetCapacityRequest{})
	check(t, err)
	if both.GetAvailableCapacity() > alone.GetAvailableCapacity()*3/2 {
		t.Errorf("two pools have %d, one of them %d", both.GetAvailableCapacity(), alone.GetAvailableCapacity())
	}
}

// larger is a request for a volume of that many bytes.
func larger(name string, bytes int64) *csi.ControllerExpandVolumeRequest {
	return &csi.ControllerExpandVolumeRequest{VolumeId: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}}
}
