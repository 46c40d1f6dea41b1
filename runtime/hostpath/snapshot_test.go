//go:build integration

package hostpath_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/slipway-vm/slipway/internal/names"
)

const labelManagedBy = "snapshot.storage.kubernetes.io/managed-by"

// TestSnapshots runs node storage against a real API server that gets the kinds of
// snapshots while it runs. The tests write what a snapshot controller would.
func TestSnapshots(t *testing.T) {
	n := start(t)
	n.volumeOf(t, n.claim(t, "before", nil)) // node storage works without the kinds
	_, err := envtest.InstallCRDs(n.config, envtest.CRDInstallOptions{Paths: []string{snapshotDefinition("classes"), snapshotDefinition("contents"), snapshotDefinition("s")}, MaxTime: 5 * time.Minute})
	check(t, err)
	for _, test := range []struct {
		name string
		run  func(*testing.T, node)
	}{
		{"a snapshot outlives its source, is restored larger, and goes with its data", lived},
		{"a snapshot of a block volume is restored as one", ofBlock},
		{"a snapshot that no node is named for is taken where the volume is", unclaimed},
		{"a snapshot of another node is left alone", ofAnotherNodesVolume},
		{"a snapshot that is to be kept keeps its data", retained},
		{"a snapshot of a volume that is not there says so, and is taken once it is", withoutVolume},
		{"a class with a parameter is refused", withParameter},
		{"a snapshot made by hand is found, and missed when it is not there", byHand},
		{"a handle that was not written down is found again", foundAgain},
		{"a restore that cannot be says what to do", refusedRestores},
		{"a snapshot that a restart cut short is taken whole", overRestart},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, n) })
	}
}

func snapshotDefinition(kind string) string {
	return filepath.Join("..", "..", "controllers", "hyperconverged", "components", "crds", "snapshot.storage.k8s.io_volumesnapshot"+kind+".yaml")
}

func lived(t *testing.T, n node) {
	source := n.filled(t, "golden-1", "golden")
	snapshot, content := n.snapshot(t, "lived", source.Name, nil)
	n.ready(t, content)
	if ptr.Deref(content.Status.RestoreSize, 0) != 1<<30 || ptr.Deref(content.Status.CreationTime, 0) == 0 || content.Status.Error != nil {
		t.Errorf("the status is %+v", content.Status)
	}
	check(t, os.WriteFile(filepath.Join(n.pool, source.Name, "disk.img"), []byte("later"), 0o600))
	check(t, os.RemoveAll(filepath.Join(n.pool, source.Name))) // as the driver does with the source's claim
	n.reported(t, snapshot, content)
	restored := n.volumeOf(t, n.restore(t, "restored", "lived", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	}))
	data, err := os.ReadFile(filepath.Join(n.pool, restored.Name, "disk.img"))
	if check(t, err); string(data) != "golden" || restored.Spec.Capacity.Storage().String() != "2Gi" {
		t.Errorf("the restored volume of %s holds %q", restored.Spec.Capacity.Storage(), data)
	}
	n.deleteContent(t, content)
	if left := n.kept(t, *content.Status.SnapshotHandle); left {
		t.Error("the data is left")
	}
	_, err = os.Stat(filepath.Join(n.pool, restored.Name, "disk.img"))
	check(t, err)
}

func ofBlock(t *testing.T, n node) {
	block := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }
	source := n.volumeOf(t, n.claim(t, "block", block))
	check(t, os.WriteFile(filepath.Join(n.pool, source.Name), []byte("golden"), 0o600))
	check(t, os.Truncate(filepath.Join(n.pool, source.Name), 1<<30))
	snapshot, content := n.snapshot(t, "of-block", source.Name, func(c *snapshotv1.VolumeSnapshotContent) {
		c.Spec.SourceVolumeMode = new(corev1.PersistentVolumeBlock)
	})
	n.ready(t, content)
	n.reported(t, snapshot, content)
	restored := n.volumeOf(t, n.restore(t, "block-restored", "of-block", func(c *corev1.PersistentVolumeClaim) {
		block(c)
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("3Gi")
	}))
	info, err := os.Stat(filepath.Join(n.pool, restored.Name))
	if check(t, err); info.Size() != 3<<30 {
		t.Errorf("the restored disk has %d bytes", info.Size())
	}
	file, err := os.Open(filepath.Join(n.pool, restored.Name))
	check(t, err)
	defer file.Close()
	head := make([]byte, 6)
	if _, err := file.Read(head); err != nil || string(head) != "golden" {
		t.Errorf("the restored disk holds %q: %v", head, err)
	}
}

func unclaimed(t *testing.T, n node) {
	source := n.filled(t, "golden-2", "golden")
	_, elsewhere := n.snapshot(t, "elsewhere-unclaimed", "pvc-elsewhere", func(c *snapshotv1.VolumeSnapshotContent) { c.Labels = nil })
	_, content := n.snapshot(t, "unclaimed", source.Name, func(c *snapshotv1.VolumeSnapshotContent) { c.Labels = nil })
	n.ready(t, content)
	if content.Labels[labelManagedBy] != "node-1" {
		t.Errorf("the labels are %v", content.Labels)
	}
	check(t, n.Get(t.Context(), client.ObjectKeyFromObject(elsewhere), elsewhere))
	if elsewhere.Labels[labelManagedBy] != "" || elsewhere.Status != nil {
		t.Errorf("the snapshot of another node was touched: %+v", elsewhere)
	}
}

func ofAnotherNodesVolume(t *testing.T, n node) {
	source := n.filled(t, "golden-3", "golden")
	_, other := n.snapshot(t, "other-node", source.Name, func(c *snapshotv1.VolumeSnapshotContent) { c.Labels[labelManagedBy] = "node-2" })
	_, driver := n.snapshot(t, "other-driver", source.Name, func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.Driver = "example.com/other" })
	_, content := n.snapshot(t, "this-node", source.Name, nil)
	n.ready(t, content)
	for _, untouched := range []*snapshotv1.VolumeSnapshotContent{other, driver} {
		check(t, n.Get(t.Context(), client.ObjectKeyFromObject(untouched), untouched))
		if untouched.Status != nil || n.kept(t, "snapshot-"+string(untouched.Spec.VolumeSnapshotRef.UID)) {
			t.Errorf("it was taken: %+v", untouched.Status)
		}
	}
}

func retained(t *testing.T, n node) {
	source := n.filled(t, "golden-4", "golden")
	_, content := n.snapshot(t, "retained", source.Name, func(c *snapshotv1.VolumeSnapshotContent) {
		c.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentRetain
	})
	n.ready(t, content)
	n.deleteContent(t, content)
	if !n.kept(t, *content.Status.SnapshotHandle) {
		t.Error("the data is gone")
	}
}

func withoutVolume(t *testing.T, n node) {
	_, content := n.snapshot(t, "without-volume", "pvc-missing", nil)
	n.failed(t, content, "storage pool missing: the directory "+n.pool+"-missing does not exist on node node-1")
	check(t, os.Mkdir(n.pool+"-missing", 0o755))
	n.failed(t, content, "searching pvc-missing on node node-1: not found")
	check(t, os.Mkdir(filepath.Join(n.pool, "pvc-missing"), 0o755))
	n.ready(t, content)
	if content.Status.Error != nil {
		t.Errorf("the error stays: %+v", content.Status.Error)
	}
}

func withParameter(t *testing.T, n node) {
	source := n.filled(t, "golden-5", "golden")
	class := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: "with-parameter"}, Driver: names.HostPathDriver,
		DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, Parameters: map[string]string{"type": "thin"},
	}
	check(t, n.Create(t.Context(), class))
	_, content := n.snapshot(t, "with-parameter", source.Name, func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.VolumeSnapshotClassName = &class.Name })
	n.failed(t, content, "parameter type is not supported: leave it out of the VolumeSnapshotClass")
}

func byHand(t *testing.T, n node) {
	source := n.filled(t, "golden-6", "golden")
	_, first := n.snapshot(t, "first", source.Name, func(c *snapshotv1.VolumeSnapshotContent) {
		c.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentRetain
	})
	n.ready(t, first)
	n.deleteContent(t, first)
	_, found := n.snapshot(t, "by-hand", "", func(c *snapshotv1.VolumeSnapshotContent) {
		c.Labels, c.Spec.Source.SnapshotHandle = nil, first.Status.SnapshotHandle
	})
	n.ready(t, found)
	if *found.Status.CreationTime != *first.Status.CreationTime || *found.Status.SnapshotHandle != *first.Status.SnapshotHandle {
		t.Errorf("the status is %+v", found.Status)
	}
	_, missing := n.snapshot(t, "by-hand-missing", "", func(c *snapshotv1.VolumeSnapshotContent) {
		c.Spec.Source.SnapshotHandle = new("snapshot-nowhere")
	})
	n.failed(t, missing, "searching snapshot-nowhere on node node-1: not found")
}

// overRestart plays a process that was killed while it copied.
func overRestart(t *testing.T, n node) {
	source := n.filled(t, "golden-7", "golden")
	n.stop()
	_, content := n.snapshot(t, "over-restart", source.Name, nil)
	half := filepath.Join(n.pool, ".slipway", "new", "snapshot-"+string(content.Spec.VolumeSnapshotRef.UID))
	check(t, os.MkdirAll(half, 0o700))
	check(t, os.WriteFile(filepath.Join(half, "disk.img"), []byte("gol"), 0o600))
	n.run(t)
	n.ready(t, content)
	data, err := os.ReadFile(filepath.Join(n.pool, ".slipway", "snapshots", *content.Status.SnapshotHandle, "disk.img"))
	if check(t, err); string(data) != "golden" {
		t.Errorf("the snapshot holds %q", data)
	}
}

// foundAgain plays a process that was killed after it took a snapshot and before it wrote that down.
func foundAgain(t *testing.T, n node) {
	source := n.filled(t, "golden-8", "golden")
	_, content := n.snapshot(t, "once", source.Name, nil)
	n.ready(t, content)
	check(t, os.WriteFile(filepath.Join(n.pool, source.Name, "disk.img"), []byte("later"), 0o600))
	taken := *content.Status.CreationTime
	content.Status = &snapshotv1.VolumeSnapshotContentStatus{ReadyToUse: new(false)}
	check(t, n.Status().Update(t.Context(), content))
	n.ready(t, content)
	data, err := os.ReadFile(filepath.Join(n.pool, ".slipway", "snapshots", *content.Status.SnapshotHandle, "disk.img"))
	if check(t, err); string(data) != "golden" || *content.Status.CreationTime != taken {
		t.Errorf("the snapshot of %d holds %q, that of %d was complete", *content.Status.CreationTime, data, taken)
	}
}

func refusedRestores(t *testing.T, n node) {
	source := n.filled(t, "golden-9", "golden")
	snapshot, content := n.snapshot(t, "ready", source.Name, nil)
	n.ready(t, content)
	n.event(t, n.restore(t, "too-early", "ready", nil), "the VolumeSnapshot ready is not ready to use")
	n.reported(t, snapshot, content)
	n.event(t, n.restore(t, "from-nothing", "nothing", nil), "the VolumeSnapshot nothing does not exist")
	n.event(t, n.restore(t, "smaller", "ready", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Mi")
	}), "ask for at least 1Gi")
	n.event(t, n.restore(t, "other-mode", "ready", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	}), "ask for volumeMode Filesystem")
	far, farContent := n.snapshot(t, "far", "pvc-far", func(c *snapshotv1.VolumeSnapshotContent) { c.Labels[labelManagedBy] = "node-2" })
	farContent.Status = &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: new("snapshot-far"), ReadyToUse: new(true)}
	check(t, n.Status().Update(t.Context(), farContent))
	n.reported(t, far, farContent)
	near := n.restore(t, "near-far", "far", nil)
	n.event(t, near, "is on node node-2, the new claim is to be on node-1")
	eventually(t, "the scheduler may choose again", func() bool {
		check(t, n.Get(t.Context(), client.ObjectKeyFromObject(near), near))
		return near.Annotations["volume.kubernetes.io/selected-node"] == ""
	})
}

// filled is the volume of a new claim, with a file that holds data.
func (n node) filled(t *testing.T, name, data string) *corev1.PersistentVolume {
	t.Helper()
	volume := n.volumeOf(t, n.claim(t, name, nil))
	check(t, os.WriteFile(filepath.Join(n.pool, volume.Name, "disk.img"), []byte(data), 0o600))
	return volume
}

// snapshot makes a VolumeSnapshot and its content, as a snapshot controller does for a volume of this node.
func (n node) snapshot(t *testing.T, name, volume string, change func(*snapshotv1.VolumeSnapshotContent)) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {
	t.Helper()
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("of-" + name)}},
	}
	check(t, n.Create(t.Context(), snapshot))
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Name: "snapcontent-" + name, Labels: map[string]string{labelManagedBy: "node-1"},
			Finalizers: []string{"snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"},
		},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{Kind: "VolumeSnapshot", Namespace: "default", Name: name, UID: snapshot.UID},
			DeletionPolicy:    snapshotv1.VolumeSnapshotContentDelete, Driver: names.HostPathDriver,
			SourceVolumeMode: new(corev1.PersistentVolumeFilesystem),
		},
	}
	if volume != "" {
		content.Spec.Source.VolumeHandle = &volume
	}
	if change != nil {
		change(content)
	}
	check(t, n.Create(t.Context(), content))
	return snapshot, content
}

// ready waits until a content is ready, and reads it.
func (n node) ready(t *testing.T, content *snapshotv1.VolumeSnapshotContent) {
	t.Helper()
	eventually(t, content.Name+" is ready", func() bool {
		check(t, n.Get(t.Context(), client.ObjectKeyFromObject(content), content))
		return content.Status != nil && ptr.Deref(content.Status.ReadyToUse, false)
	})
}

// failed waits until a content and an event tell of an error.
func (n node) failed(t *testing.T, content *snapshotv1.VolumeSnapshotContent, text string) {
	t.Helper()
	eventually(t, content.Name+" has the error "+text, func() bool {
		check(t, n.Get(t.Context(), client.ObjectKeyFromObject(content), content))
		return content.Status != nil && content.Status.Error != nil && strings.Contains(*content.Status.Error.Message, text)
	})
	var events corev1.EventList
	eventually(t, content.Name+" has an event with "+text, func() bool {
		check(t, n.List(t.Context(), &events))
		for _, event := range events.Items {
			if event.InvolvedObject.UID == content.UID && event.Type == corev1.EventTypeWarning && strings.Contains(event.Message, text) {
				return true
			}
		}
		return false
	})
}

// reported gives a snapshot the status that its content tells of.
func (n node) reported(t *testing.T, snapshot *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) {
	t.Helper()
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{
		BoundVolumeSnapshotContentName: &content.Name, ReadyToUse: new(true), CreationTime: &metav1.Time{Time: time.Now()},
	}
	check(t, n.Status().Update(t.Context(), snapshot))
}

// deleteContent deletes a content as a snapshot controller does, and waits until it is gone.
func (n node) deleteContent(t *testing.T, content *snapshotv1.VolumeSnapshotContent) {
	t.Helper()
	gone := content.DeepCopy()
	check(t, n.Delete(t.Context(), gone))
	check(t, n.Get(t.Context(), client.ObjectKeyFromObject(gone), gone))
	if !controllerutil.ContainsFinalizer(gone, "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection") {
		t.Error("the content lost its finalizer while a snapshot needs it")
	}
	patch := []byte(`{"metadata":{"annotations":{"snapshot.storage.kubernetes.io/volumesnapshot-being-deleted":"yes"}}}`)
	check(t, n.Patch(t.Context(), gone, client.RawPatch(types.MergePatchType, patch)))
	eventually(t, content.Name+" is gone", func() bool {
		return apierrors.IsNotFound(n.Get(t.Context(), client.ObjectKeyFromObject(gone), gone))
	})
}

// kept says whether the pool has the data of a snapshot.
func (n node) kept(t *testing.T, handle string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(n.pool, ".slipway", "snapshots", handle))
	return err == nil
}

// restore makes a claim from a snapshot as it is once the scheduler chose this node.
func (n node) restore(t *testing.T, name, snapshot string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	return n.claim(t, name, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: snapshot}
		if change != nil {
			change(c)
		}
	})
}
