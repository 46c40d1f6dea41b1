//go:build integration

package datavolume_test

import (
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// TestClonesOfSnapshots runs the controller against a real API server; the tests play storage.
func TestClonesOfSnapshots(t *testing.T) {
	c := start(t)
	for name, test := range map[string]func(*testing.T, *foreign){
		"a snapshot is cloned once it is ready":            snapshotCloned,
		"a DataSource names one":                           snapshotOfDataSource,
		"a clone is made on the snapshot's node":           snapshotOnNode,
		"one of another namespace is brought":              snapshotComes,
		"leave for a claim is none for a snapshot":         snapshotWithoutLeave,
		"onto a class of another driver it is copied":      snapshotOfAnotherDriver,
		"and where there is no class of its own, it waits": snapshotOfNoClass,
		"a claim smaller than the snapshot is refused":     snapshotTooLarge,
		"a content that holds another snapshot is no one":  snapshotOfAnother,
	} {
		t.Run(name, func(t *testing.T) { test(t, &foreign{world: newWorld(t, c), there: newWorld(t, c)}) })
	}
}

// snapshot makes a VolumeSnapshot that nobody has taken yet.
func (w *world) snapshot(name string) *snapshotv1.VolumeSnapshot {
	w.t.Helper()
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{"instancetype.kubevirt.io/default-preference": "debian"}},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("data")}},
	}
	w.must(w.Create(w.t.Context(), snapshot))
	return snapshot
}

// take plays the snapshot controller: the snapshot is ready, held by a content of a driver that is on node.
func (w *world) take(snapshot *snapshotv1.VolumeSnapshot, driver, node string) *snapshotv1.VolumeSnapshotContent {
	w.t.Helper()
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-" + string(snapshot.UID)},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, SourceVolumeMode: new(corev1.PersistentVolumeFilesystem),
			Source:            snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: new("handle")},
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: snapshot.Namespace, Name: snapshot.Name, UID: snapshot.UID},
		},
	}
	if node != "" {
		content.Labels = map[string]string{"snapshot.storage.kubernetes.io/managed-by": node}
	}
	w.must(w.Create(w.t.Context(), content))
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{
		BoundVolumeSnapshotContentName: &content.Name, ReadyToUse: new(true), RestoreSize: new(resource.MustParse("1Gi")),
	}
	w.must(w.Status().Update(w.t.Context(), snapshot))
	return content
}

func ofSnapshot(namespace string) *cdiv1.DataVolumeSource {
	return &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: "kept"}}
}

// waits waits until the DataVolume says why it does.
func (w *world) waits(name, reason string) cdiv1.DataVolumeCondition {
	w.t.Helper()
	var bound cdiv1.DataVolumeCondition
	w.until(name+" waits because of "+reason, func() bool {
		bound = condition(w.dv(name), cdiv1.DataVolumeBound)
		return bound.Reason == reason
	})
	return bound
}

func snapshotCloned(t *testing.T, f *foreign) {
	f.create("clone", "fast", ofSnapshot(f.namespace), nil)
	f.waits("clone", "CloneSourceNotFound")
	snapshot := f.snapshot("kept")
	f.waits("clone", "CloneSourceNotReady")
	f.take(snapshot, "example.com/fast", "")
	f.phase("clone", cdiv1.CloneFromSnapshotSourceInProgress)
	claim := f.claim("clone")
	if from := claim.Spec.DataSource; from == nil || from.Kind != "VolumeSnapshot" || from.Name != "kept" || *from.APIGroup != "snapshot.storage.k8s.io" {
		t.Errorf("the clone's claim is made from %+v", from)
	}
	f.bind("clone")
	dv := f.phase("clone", cdiv1.Succeeded)
	if dv.Annotations[names.AnnotationDigest] != "" || claim.Labels["instancetype.kubevirt.io/default-preference"] != "debian" {
		t.Errorf("the clone is %+v", dv.ObjectMeta)
	}
}

func snapshotOfDataSource(t *testing.T, f *foreign) {
	f.must(f.Create(t.Context(), &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Name: "golden", Namespace: f.namespace},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: f.namespace, Name: "kept"}}},
	}))
	f.take(f.snapshot("kept"), "example.com/fast", "")
	f.create("clone", "fast", nil, func(dv *cdiv1.DataVolume) {
		dv.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "golden"}
	})
	f.phase("clone", cdiv1.CloneFromSnapshotSourceInProgress)
	f.bind("clone")
	f.phase("clone", cdiv1.Succeeded)
}

func snapshotOnNode(t *testing.T, f *foreign) {
	f.take(f.snapshot("kept"), "example.com/local", "node-7")
	f.create("clone", "local", ofSnapshot(f.namespace), func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{names.AnnotationBind: "true"}
	})
	pod := f.pod("clone")
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		t.Fatalf("the pod may run anywhere: %+v", pod.Spec)
	}
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || len(terms[0].MatchFields) != 1 || terms[0].MatchFields[0].Values[0] != "node-7" {
		t.Errorf("the pod runs on %+v", terms)
	}
}

func snapshotComes(t *testing.T, f *foreign) {
	f.there.take(f.there.snapshot("kept"), "example.com/fast", "")
	dv := f.create("clone", "fast", ofSnapshot(f.there.namespace), func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: "volumesnapshots/" + f.there.namespace + "/kept"}
	})
	there := &corev1.PersistentVolumeClaim{}
	f.until("there is a clone in the snapshot's namespace", func() bool {
		return f.Get(t.Context(), client.ObjectKey{Namespace: f.there.namespace, Name: "clone-" + string(dv.UID)}, there) == nil
	})
	if from := there.Spec.DataSource; from == nil || from.Kind != "VolumeSnapshot" || from.Name != "kept" {
		t.Errorf("it is made from %+v", from)
	}
	f.phase("clone", cdiv1.CloneFromSnapshotSourceInProgress)
	volume := f.volume(there)
	f.gone(there)
	f.until("the volume is the new claim's", func() bool { return f.now(volume).Spec.ClaimRef.Namespace == f.namespace })
	f.bind("clone")
	if dv := f.phase("clone", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "" {
		t.Errorf("the clone is %+v", dv.ObjectMeta)
	}
}

func snapshotWithoutLeave(t *testing.T, f *foreign) {
	f.there.take(f.there.snapshot("kept"), "example.com/fast", "")
	for name, leave := range map[string]string{"none": "", "claim": f.there.namespace + "/kept"} {
		f.create(name, "fast", ofSnapshot(f.there.namespace), func(dv *cdiv1.DataVolume) {
			dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: leave}
		})
		f.fails(name, "CloneNotAuthorized", "VolumeSnapshot "+f.there.namespace+"/kept")
	}
	var claims corev1.PersistentVolumeClaimList
	if f.must(f.List(t.Context(), &claims, client.InNamespace(f.there.namespace))); len(claims.Items) > 0 {
		t.Errorf("the snapshot's namespace has the claims %+v", claims.Items)
	}
}

// fails waits until the DataVolume has failed, and checks why.
func (w *world) fails(name, reason, words string) {
	w.t.Helper()
	if c := condition(w.phase(name, cdiv1.Failed), cdiv1.DataVolumeRunning); c.Reason != reason || !strings.Contains(c.Message, words) {
		w.t.Errorf("Running is %+v", c)
	}
}

func snapshotOfAnotherDriver(t *testing.T, f *foreign) {
	f.take(f.snapshot("kept"), "example.com/local", "node-1")
	dv := f.create("clone", "fast", ofSnapshot(f.namespace), nil)
	pod, name := f.pod("clone"), "restored-"+string(dv.UID)
	if affinity := pod.Spec.Affinity; affinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0] != "node-1" {
		t.Errorf("the pod that copies is placed by %+v", affinity)
	}
	restored := f.claim(name)
	if from := restored.Spec.DataSource; *restored.Spec.StorageClassName != "local" || from == nil || from.Name != "kept" || !metav1.IsControlledBy(restored, dv) {
		t.Errorf("the snapshot became %+v", restored)
	}
	claim := f.claim("clone")
	if claim.Spec.DataSource != nil || claim.Annotations[datavolume.AnnotationCopiedFrom] != f.namespace+"/"+name ||
		claim.Annotations["cdi.kubevirt.io/cloneFallbackReason"] != "The storageclass provisioner does not match the volumesnapshotcontent driver" {
		t.Errorf("the claim is %+v", claim)
	}
	f.bind("clone")
	f.play("clone", corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:33"})
	if dv := f.phase("clone", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "slipway1:33" || dv.Labels["instancetype.kubevirt.io/default-preference"] != "debian" {
		t.Errorf("the DataVolume is %+v", dv.ObjectMeta)
	}
	f.until("what was made of the snapshot goes", func() bool { left := f.claim(name); return left.UID == "" || left.DeletionTimestamp != nil })
}

func snapshotOfNoClass(t *testing.T, f *foreign) {
	f.take(f.snapshot("kept"), "example.com/other", "")
	f.create("clone", "fast", ofSnapshot(f.namespace), nil)
	if c := f.waits("clone", "CloneSourceNotReady"); !strings.Contains(c.Message, "no storage class of driver example.com/other") {
		t.Errorf("Bound is %+v", c)
	}
}

func snapshotTooLarge(t *testing.T, f *foreign) {
	snapshot := f.snapshot("kept")
	f.take(snapshot, "example.com/fast", "")
	snapshot.Status.RestoreSize = new(resource.MustParse("100Gi"))
	f.must(f.Status().Update(t.Context(), snapshot))
	f.create("clone", "fast", ofSnapshot(f.namespace), nil)
	f.fails("clone", "CloneValidationFailed", "100Gi")
}

func snapshotOfAnother(t *testing.T, f *foreign) {
	snapshot := f.snapshot("kept")
	content := f.take(snapshot, "example.com/fast", "")
	f.must(f.Delete(t.Context(), content))
	content.ResourceVersion, content.Spec.VolumeSnapshotRef.UID = "", "another"
	f.must(f.Create(t.Context(), content))
	f.create("clone", "fast", ofSnapshot(f.namespace), nil)
	if c := f.waits("clone", "CloneSourceNotReady"); !strings.Contains(c.Message, "does not hold") {
		t.Errorf("Bound is %+v", c)
	}
}
