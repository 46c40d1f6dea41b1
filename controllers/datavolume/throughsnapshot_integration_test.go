//go:build integration

package datavolume_test

import (
	"fmt"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// TestClonesThroughSnapshots runs the controller against a real API server; the tests play storage.
func TestClonesThroughSnapshots(t *testing.T) {
	c := start(t)
	for class, snapshots := range map[string]*string{"fast": new("snaps"), "local": nil} {
		profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: class}}
		w := &world{Client: c, cached: c.cached, t: t}
		w.must(c.Create(t.Context(), profile))
		profile.Status = cdiv1.StorageProfileStatus{
			CloneStrategy: new(cdiv1.CloneStrategySnapshot), SnapshotClass: snapshots, Provisioner: new("example.com/" + class),
		}
		w.must(c.Status().Update(t.Context(), profile))
		w.seen(profile)
	}
	for name, test := range map[string]func(*testing.T, *foreign){
		"a claim is cloned through a snapshot":               throughSnapshot,
		"one of another namespace is brought":                throughSnapshotThere,
		"a DataVolume that goes leaves no snapshot":          throughSnapshotAbandoned,
		"a snapshot that is deleted is missed":               throughSnapshotThatGoes,
		"without a snapshot class it is copied":              throughNoSnapshot,
		"what has begun otherwise goes on so":                throughWhatHasBegun,
		"a claim of another mode is copied without one":      throughSnapshotOfAnotherMode,
		"a claim asks for what its snapshot needs":           throughLargeSnapshot,
		"one that is as it is written fails once":            throughSnapshotTooLarge,
		"a DataSource that moves on has another one":         throughSnapshotOfTheNewest,
		"what is on a claim says nothing of another one":     throughForgedSnapshot,
		"one that was allowed moves on with no DataSource":   throughWhatWasAllowed,
		"what is on its way arrives when its source is gone": throughWhatIsGone,
	} {
		t.Run(name, func(t *testing.T) { test(t, &foreign{world: newWorld(t, c), there: newWorld(t, c)}) })
	}
	t.Run("unless the CDI object knows better", func(t *testing.T) { throughNothing(t, &foreign{world: newWorld(t, c)}) }) // for all, so last
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
	f.note("base", names.AnnotationDigest, "slipway1:22")                      // another disk has the name meanwhile
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
	there := f.brought(dv)
	if from := there.Spec.DataSource; from == nil || from.Kind != "VolumeSnapshot" || from.Name != snapshot.Name {
		t.Errorf("it is made from %+v", from)
	}
	f.there.note("base", names.AnnotationDigest, "slipway1:22") // another disk has the name meanwhile
	f.arrives(there)
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

func throughSnapshotThatGoes(t *testing.T, f *foreign) {
	f.filled("fast")
	dv := f.cloneOf(f.namespace, "fast")
	snapshot := f.taken(dv)
	f.take(snapshot, "example.com/fast", "")
	f.phase("clone", cdiv1.CloneFromSnapshotSourceInProgress)
	f.until("the claim is there", func() bool { return f.claim("clone").UID != "" })
	f.must(f.Delete(t.Context(), snapshot)) // by somebody
	f.until("it says what is gone", func() bool {
		f.pass(dv, &lagging.Client{}) // or several, for the controller is at work on it, too
		c := condition(f.dv("clone"), cdiv1.DataVolumeBound)
		return c.Reason == "Pending" && strings.Contains(c.Message, snapshot.Name+", from which it is to be made, is gone")
	})
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

// throughWhatWasAllowed has a DataSource of another namespace name another image while the clone of the first is made.
func throughWhatWasAllowed(t *testing.T, f *foreign) {
	f.there.filled("fast")
	source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: f.there.namespace, Name: "golden"}}
	source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: f.there.namespace, Name: "base"}
	f.must(f.Create(t.Context(), source))
	dv := f.ofSource(f.there.namespace)
	snapshot := f.there.taken(dv)
	source.Spec.Source.PVC.Name = "newer"
	f.must(f.Update(t.Context(), source))
	f.pass(dv, &lagging.Client{})
	f.take(snapshot, "example.com/fast", "")
	f.arrives(f.brought(dv))
	if dv := f.phase("clone", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "slipway1:11" {
		t.Errorf("the clone is %+v", dv.ObjectMeta)
	}
	f.removed(snapshot)
}

// throughWhatIsGone deletes the image, of which the DataSource names a newer one, while its clone is on its way.
func throughWhatIsGone(t *testing.T, f *foreign) {
	f.there.filled("fast")
	source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: f.there.namespace, Name: "golden"}}
	source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: f.there.namespace, Name: "base"}
	f.must(f.Create(t.Context(), source))
	dv := f.ofSource(f.there.namespace)
	f.take(f.there.taken(dv), "example.com/fast", "")
	there := f.brought(dv)
	source.Spec.Source.PVC.Name = "newer"
	f.must(f.Update(t.Context(), source))
	f.must(f.Delete(t.Context(), f.there.dv("base")))
	base := f.there.claim("base")
	f.must(f.Delete(t.Context(), base))
	f.gone(base)
	f.pass(dv, &lagging.Client{})
	f.arrives(there)
	f.phase("clone", cdiv1.Succeeded)
}

// ofSource makes a DataVolume that clones what DataSource golden of a namespace names, which is base now.
func (w *world) ofSource(namespace string) *cdiv1.DataVolume {
	w.t.Helper()
	return w.create("clone", "fast", nil, func(dv *cdiv1.DataVolume) {
		dv.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: &namespace, Name: "golden"}
		dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: namespace + "/base"}
	})
}

// brought waits for the clone of dv in the other namespace.
func (f *foreign) brought(dv *cdiv1.DataVolume) *corev1.PersistentVolumeClaim {
	f.t.Helper()
	there := &corev1.PersistentVolumeClaim{}
	f.until("there is a clone in the source's namespace", func() bool {
		return f.Get(f.t.Context(), client.ObjectKey{Namespace: f.there.namespace, Name: "clone-" + string(dv.UID)}, there) == nil
	})
	return there
}

// arrives plays storage for a clone in the other namespace, until its volume is the DataVolume's.
func (f *foreign) arrives(there *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	f.t.Helper()
	volume := f.volume(there)
	f.gone(there)
	f.until("the volume is the new claim's", func() bool { return f.now(volume).Spec.ClaimRef.Namespace == f.namespace })
	f.until("the clone's claim is there", func() bool { return f.claim("clone").UID != "" })
	f.bind("clone")
	return volume
}

func throughNoSnapshot(t *testing.T, f *foreign) {
	f.create("base", "local", http(), func(dv *cdiv1.DataVolume) { dv.Annotations = map[string]string{names.AnnotationBind: "true"} })
	f.bind("base")
	f.play("base", corev1.PodSucceeded, 0, &transfer.Result{})
	f.phase("base", cdiv1.Succeeded)
	f.cloneOf(f.namespace, "local")
	f.phase("clone", cdiv1.WaitForFirstConsumer)
	if claim := f.claim("clone"); claim.Spec.DataSource != nil || claim.Annotations["cdi.kubevirt.io/cloneFallbackReason"] != "No compatible volumesnapshotclass found" {
		t.Errorf("the claim is %+v", claim)
	}
	f.tells("NoVolumeSnapshotClass")
}

// throughNothing has the CDI object say how clones are made, whatever the profiles say.
func throughNothing(t *testing.T, f *foreign) {
	cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi"}, Spec: cdiv1.CDISpec{CloneStrategyOverride: new(cdiv1.CloneStrategyCsiClone)}}
	f.must(f.Create(t.Context(), cdi))
	f.seen(cdi)
	f.filled("fast")
	f.cloneOf(f.namespace, "fast")
	f.phase("clone", cdiv1.CSICloneInProgress)
	if from := f.claim("clone").Spec.DataSource; from == nil || from.Kind != "PersistentVolumeClaim" || from.Name != "base" {
		t.Errorf("the clone's claim is made from %+v", from)
	}
	f.bind("clone")
	if dv := f.phase("clone", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "slipway1:11" {
		t.Errorf("the clone is %+v", dv.ObjectMeta)
	}
}

// throughWhatHasBegun finds a clone in the source's namespace that an earlier build has begun, without a snapshot.
func throughWhatHasBegun(t *testing.T, f *foreign) {
	dv := f.cloneOf(f.there.namespace, "fast") // which waits for its source
	f.waits("clone", "CloneSourceNotFound")
	there := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.there.namespace, Name: "clone-" + string(dv.UID), Labels: map[string]string{names.Domain + "clone-for": string(dv.UID)},
			Annotations: map[string]string{names.Domain + "clone-for": f.namespace + "/clone"},
		},
		Spec: *dv.Spec.PVC.DeepCopy(),
	}
	there.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "base"}
	f.must(f.Create(t.Context(), there))
	f.there.filled("fast")
	volume := f.arrives(there)
	f.phase("clone", cdiv1.Succeeded)
	var snapshots snapshotv1.VolumeSnapshotList
	if f.must(f.List(t.Context(), &snapshots, client.InNamespace(f.there.namespace))); len(snapshots.Items) > 0 {
		t.Errorf("there are the snapshots %+v", snapshots.Items)
	}
	settled := &corev1.PersistentVolume{}
	if f.must(f.Get(t.Context(), client.ObjectKeyFromObject(volume), settled)); len(settled.Annotations) > 0 {
		t.Errorf("the volume bears %v", settled.Annotations)
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

// throughLargeSnapshot clones through a snapshot that needs more room than its source has.
func throughLargeSnapshot(t *testing.T, f *foreign) {
	f.filled("fast")
	source := &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: f.namespace, Name: "base"}}
	dv := f.create("clone", "fast", source, func(dv *cdiv1.DataVolume) {
		dv.Spec.Storage = &cdiv1.StorageSpec{StorageClassName: new("fast"), AccessModes: dv.Spec.PVC.AccessModes, Resources: dv.Spec.PVC.Resources, VolumeMode: dv.Spec.PVC.VolumeMode}
		dv.Spec.PVC = nil
	})
	f.takeLarge(f.taken(dv))
	f.phase("clone", cdiv1.CloneFromSnapshotSourceInProgress)
	if size := f.claim("clone").Spec.Resources.Requests.Storage(); size.String() != "100Gi" {
		t.Errorf("the claim asks for %s", size)
	}
}

// takeLarge takes a snapshot that needs 100Gi.
func (w *world) takeLarge(snapshot *snapshotv1.VolumeSnapshot) {
	w.t.Helper()
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true), RestoreSize: new(resource.MustParse("100Gi"))}
	w.must(w.Status().Update(w.t.Context(), snapshot))
}

func throughSnapshotTooLarge(t *testing.T, f *foreign) {
	f.filled("fast")
	dv := f.cloneOf(f.namespace, "fast")
	snapshot := f.taken(dv)
	f.takeLarge(snapshot)
	f.fails("clone", "CloneValidationFailed", "100Gi")
	f.removed(snapshot)
	f.pass(dv, &lagging.Client{})
	f.pass(dv, &lagging.Client{})
	f.fails("clone", "CloneValidationFailed", "100Gi")
	var snapshots snapshotv1.VolumeSnapshotList
	if f.must(f.List(t.Context(), &snapshots, client.InNamespace(f.namespace))); len(snapshots.Items) > 0 {
		t.Errorf("there are the snapshots %+v", snapshots.Items)
	}
}

// throughForgedSnapshot clones a snapshot, by each kind of DataVolume, with annotations on both that name a claim whose
// content it would have.
func throughForgedSnapshot(t *testing.T, f *foreign) {
	f.there.filled("fast")
	f.take(f.snapshot("kept"), "example.com/fast", "")
	marks := map[string]string{names.Domain + "snapshot-of": f.there.namespace + "/base", names.Domain + "cloned-from": f.there.namespace + "/base"}
	f.create("clone", "fast", ofSnapshot(f.namespace), func(dv *cdiv1.DataVolume) { dv.Annotations = marks })
	f.create("external", "fast", nil, func(dv *cdiv1.DataVolume) {
		dv.Spec.PVC.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: "kept"}
	})
	for _, name := range []string{"clone", "external"} {
		f.until("claim "+name+" exists", func() bool { return f.claim(name).UID != "" })
		for mark, value := range marks {
			f.note(name, mark, value)
		}
		f.bind(name)
		if dv := f.phase(name, cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "" {
			t.Errorf("the clone is %+v", dv.ObjectMeta)
		}
	}
}

// note annotates a claim, as somebody may.
func (w *world) note(claim, annotation, value string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	w.must(w.Patch(w.t.Context(), w.claim(claim), client.RawPatch("application/merge-patch+json", []byte(patch))))
}
