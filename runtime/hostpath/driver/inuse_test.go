package driver_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestASnapshotOfWhatIsWrittenIsRefusedForAllToSee takes a snapshot where no blocks are shared: what is written to meanwhile is told of
// to the user, as no call under way would be, and leaves nothing behind; once nobody writes there is a snapshot.
func TestASnapshotOfWhatIsWrittenIsRefusedForAllToSee(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "slipway-pool-") // whose file system shares no blocks
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	n := serve(t, pools{"plain": dir})
	volume := asked("pvc-1", false)
	volume.Parameters = map[string]string{"storagePool": "plain"}
	_, err = n.CreateVolume(t.Context(), volume)
	check(t, err)
	disk, err := os.Create(filepath.Join(dir, "pvc-1", "disk.img"))
	check(t, err)
	check(t, disk.Truncate(1<<20))

	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				stopped <- disk.Close()
				return
			case <-time.After(time.Millisecond):
				if _, err := disk.WriteAt([]byte("written"), 0); err != nil {
					stopped <- err
					return
				}
			}
		}
	}()
	request := &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: "pvc-1"}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); { // a copy that came while the writer had no processor is a good one
		taken, failure := n.CreateSnapshot(t.Context(), request)
		if err = failure; err != nil {
			break
		}
		_, failure = n.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: taken.GetSnapshot().GetSnapshotId()})
		check(t, failure)
	}
	stop()
	check(t, <-stopped)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "written to while it was copied") || !strings.Contains(err.Error(), "stop what writes to it") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, ".slipway", "new")); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	_, err = n.CreateSnapshot(t.Context(), request)
	check(t, err)
}
