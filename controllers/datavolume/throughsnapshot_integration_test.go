//go:build integration

package datavolume_test

import (
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// TestClonesThroughSnapshots runs the controller against a real API server; the tests play storage.
func TestClonesThroughSnapshots(t *testing.T) {
	c := start(t)
	for class, snapshots := range map[string]*string{"fast": new("snaps"), "local": nil} {
		profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: class}}
		w := &world{Client: c, t: t}
		w.must(c.Create(t.Context(), profile))
		profile.Status = cdiv1.StorageProfileStatus{
			CloneStrategy: new(cdiv1.CloneStrategySnapshot), SnapshotClass: snapshots, Provisioner: new("example.com/" + class),
		}
		w.must(c.Status().Update(t.Context(), profile))
	}
	for name, test := range map[string]func(*testing.T, *foreign){
		"a claim is cloned through a snapshot":           throughSnapshot,
		"one of another namespace is brought":            throughSnapshotThere,
		"a DataVolume that goes leaves no snapshot":      throughSnapshotAbandoned,
		"without a snapshot class it says so":            throughNoSnapshot,
		"a claim of another mode is copied without one":  throughSnapshotOfAnotherMode,
		"a DataSource that moves on has another one":     throughSnapshotOfTheNewest,
		"what is on a claim says nothing of another one": throughForgedSnapshot,
	} {
		t.Run(name, func(t *testing.T) { test(t, &foreign{world: newWorld(t, c), there: newWorld(t, c)}) })
	}
}

// filled makes a DataVolume base that has been imported.
func (w *world) filled(class string) {
	w.t.Helper()
	w.create("base", class, http(), nil)
	w.bind("base")
	w.play("base", corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:11"})
	w.phase("base", cdiv1.Succeeded)
}

// cloneOf makes a DataVolume that clones base of a namespace.
func (w *world) cloneOf(namespace, class string) *cdiv1.DataVolume {
	w.t.Helper()
	return w.create("clone", class, &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "base"}}, func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: namespace + "/base"}
	})
}

// taken waits until the snapshot is asked for through which dv clones.
func (w *world) taken(dv *cdiv1.DataVolume) *snapshotv1.VolumeSnapshot {
	w.t.Helper()
	snapshot := &snapshotv1.VolumeSnapshot{}
	w.until("a snapshot is taken of the source", func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "clone-" + string(dv.UID)}, snapshot) == nil
	})
	if spec := snapshot.Spec; *spec.Source.PersistentVolumeClaimName != "base" || *spec.VolumeSnapshotClassName != "snaps" {
		w.t.Errorf("the snapshot asks for %+v", spec)
	}
	return snapshot
}

// removed waits until a snapshot is gone.
func (w *world) removed(snapshot *snapshotv1.VolumeSnapshot) {
	w.t.Helper()
	w.until("the snapshot is gone", func() bool {
		return apierrors.IsNotFound(w.Get(w.t.Context(), client.ObjectKeyFromObject(snapshot), &snapshotv1.VolumeSnapshot{}))
	})
}

func throughSnapshot(t *testing.T, f *foreign) {
	f.filled("fast")
	dv := f.cloneOf(f.namespace, "fast")
	snapshot := f.taken(dv)
	if c := condition(f.phase("clone", cdiv1.SnapshotForSmartCloneInProgress), cdiv1.DataVolumeRunning); c.Reason != "CloneInProgress" || !strings.Contains(c.Message, snapshot.Name) {
		t.Errorf("Running is %+v", c)
	}
	f.take(snapshot, "example.com/fast", "")
	f.phase("clone", cdiv1.CloneFromSnapshotSourceInProgress)
	if from := f.claim("clone").Spec.DataSource; from == nil || from.Kind != "VolumeSnapshot" || from.Name != snapshot.Name {
		t.Errorf("the clone's claim is made from %+v", from)
	}
	f.must(f.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot)) // it stays until it is cloned
	f.bind("clone")
	if dv := f.phase("clone", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "slipway1:11" {
		t.Errorf("the clone is %+v", dv.ObjectMeta)
	}
	f.removed(snapshot)
}

func throughSnapshotThere(t *testing.T, f *foreign) {
	f.there.filled("fast")
	dv := f.cloneOf(f.there.namespace, "fast")
	snapshot := f.there.taken(dv)
	f.take(snapshot, "example.com/fast", "")
	there := &corev1.PersistentVolumeClaim{}
	f.until("there is a clone in the source's namespace", func() bool {
		return f.Get(t.Context(), client.ObjectKey{Namespace: f.there.namespace, Name: "clone-" + string(dv.UID)}, there) == nil
	})
	if from := there.Spec.DataSource; from == nil || from.Kind != "VolumeSnapshot" || from.Name != snapshot.Name {
		t.Errorf("it is made from %+v", from)
	}
	volume := f.volume(there)
	f.gone(there)
	f.until("the volume is the new claim's", func() bool { return f.now(volume).Spec.ClaimRef.Namespace == f.namespace })
	f.bind("clone")
	if dv := f.phase("clone", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "slipway1:11" {
		t.Errorf("the clone is %+v", dv.ObjectMeta)
	}
	f.removed(snapshot)
}

func throughSnapshotAbandoned(t *testing.T, f *foreign) {
	f.there.filled("fast")
	dv := f.cloneOf(f.there.namespace, "fast")
	snapshot := f.there.taken(dv)
	f.must(f.Delete(t.Context(), dv))
	f.removed(snapshot)
}

// throughSnapshotOfTheNewest has the DataSource name another claim while the snapshot of the first is taken.
func throughSnapshotOfTheNewest(t *testing.T, f *foreign) {
	f.filled("fast")
	f.create("older", "fast", http(), nil)
	f.bind("older")
	f.play("older", corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:00"})
	f.phase("older", cdiv1.Succeeded)
	source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "golden"}}
	source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: f.namespace, Name: "older"}
	f.must(f.Create(t.Context(), source))
	dv := f.create("clone", "fast", nil, func(dv *cdiv1.DataVolume) {
		dv.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "golden"}
	})
	snapshot := &snapshotv1.VolumeSnapshot{}
	of := func(claim string) func() bool {
		return func() bool {
			err := f.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: "clone-" + string(dv.UID)}, snapshot)
			return err == nil && *snapshot.Spec.Source.PersistentVolumeClaimName == claim
		}
	}
	f.until("a snapshot is taken of the older image", of("older"))
	f.must(f.Get(t.Context(), client.ObjectKeyFromObject(source), source))
	source.Spec.Source.PVC.Name = "base"
	f.must(f.Update(t.Context(), source))
	f.until("a snapshot is taken of the newer image", of("base"))
	f.take(snapshot, "example.com/fast", "")
	f.phase("clone", cdiv1.CloneFromSnapshotSourceInProgress)
	f.bind("clone")
	if dv := f.phase("clone", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "slipway1:11" {
		t.Errorf("the clone is %+v", dv.ObjectMeta)
	}
}

func throughNoSnapshot(t *testing.T, f *foreign) {
	f.create("base", "local", http(), func(dv *cdiv1.DataVolume) { dv.Annotations = map[string]string{names.AnnotationBind: "true"} })
	f.bind("base")
	f.play("base", corev1.PodSucceeded, 0, &transfer.Result{})
	f.phase("base", cdiv1.Succeeded)
	f.cloneOf(f.namespace, "local")
	if c := f.waits("clone", "NoVolumeSnapshotClass"); !strings.Contains(c.Message, "driver example.com/local") {
		t.Errorf("Bound is %+v", c)
	}
}

func throughSnapshotOfAnotherMode(t *testing.T, f *foreign) {
	f.filled("fast")
	f.create("clone", "fast", &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: f.namespace, Name: "base"}}, func(dv *cdiv1.DataVolume) {
		dv.Spec.PVC.VolumeMode = new(corev1.PersistentVolumeBlock)
	})
	if args := f.pod("clone").Spec.Containers[0].Args; args[len(args)-1] != "--copy-from=/source" {
		t.Errorf("the pod is told %v", args)
	}
	var snapshots snapshotv1.VolumeSnapshotList
	if f.must(f.List(t.Context(), &snapshots, client.InNamespace(f.namespace))); len(snapshots.Items) > 0 {
		t.Errorf("there are the snapshots %+v", snapshots.Items)
	}
}

// throughForgedSnapshot clones a snapshot, with an annotation that names a claim whose content it would have.
func throughForgedSnapshot(t *testing.T, f *foreign) {
	f.filled("fast")
	f.take(f.snapshot("kept"), "example.com/fast", "")
	f.create("clone", "fast", ofSnapshot(f.namespace), func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{names.Domain + "snapshot-of": f.namespace + "/base"}
	})
	f.bind("clone")
	if dv := f.phase("clone", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "" {
		t.Errorf("the clone is %+v", dv.ObjectMeta)
	}
}
