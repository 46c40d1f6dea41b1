//go:build integration

package datavolume_test

import (
	"slices"
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
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// copied waits for the claim in the other namespace and the pod that copies into it.
func (f *foreign) copied(dv *cdiv1.DataVolume) *corev1.PersistentVolumeClaim {
	f.t.Helper()
	pod := f.there.pod("clone-" + string(dv.UID))
	claim := f.there.claim("clone-" + string(dv.UID))
	if claim.Spec.DataSource != nil || pod.OwnerReferences[0].UID != claim.UID || !slices.Contains(pod.Spec.Containers[0].Args, "--copy-from=/source") {
		f.t.Errorf("the copy there is %+v, its pod %+v", claim, pod)
	}
	return claim
}

func copyThere(t *testing.T, f *foreign) {
	f.source()
	dv := f.copyOf(f.there.namespace, "fast", nil)
	there := f.copied(dv)
	f.there.play(there.Name, corev1.PodRunning, 0, nil)
	f.phase("copy", cdiv1.CloneInProgress)
	volume := f.volume(f.there.claim(there.Name))
	if f.claim("copy").UID != "" {
		t.Error("the claim is there before the copy is whole")
	}
	f.there.play(there.Name, corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:33"})
	f.gone(there)
	f.until("the new claim is there", func() bool { return f.claim("copy").UID != "" })
	if claim := f.claim("copy"); claim.Spec.VolumeName != volume.Name || claim.Annotations[datavolume.AnnotationCloneType] != "copy" {
		t.Errorf("the claim is %+v", claim)
	}
	f.bind("copy")
	if dv := f.phase("copy", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "slipway1:33" {
		t.Errorf("the DataVolume is %+v", dv.ObjectMeta)
	}
	if f.now(volume); volume.Labels[datavolume.LabelCloneFor] != "" || len(volume.Annotations) > 0 {
		t.Errorf("the volume that has arrived is %+v", volume)
	}
	f.there.podGone(there.Name)
}

func copyThereInUse(t *testing.T, f *foreign) {
	f.source()
	dv := f.copyOf(f.there.namespace, "fast", nil)
	there := f.copied(dv)
	f.there.play(there.Name, corev1.PodRunning, 0, nil)
	f.phase("copy", cdiv1.CloneInProgress)
	begun := f.there.pod(there.Name).UID
	user := f.there.user("vm")
	f.until("the copy is stopped", func() bool {
		c := condition(f.dv("copy"), cdiv1.DataVolumeRunning)
		return c.Reason == "CloneSourceInUse" && strings.HasPrefix(c.Message, "pod "+f.there.namespace+"/vm using PersistentVolumeClaim base")
	})
	f.must(f.Delete(t.Context(), user))
	f.until("the copy begins anew", func() bool { return f.there.pod(there.Name).UID != begun })
	if f.there.claim(there.Name).UID != there.UID {
		t.Error("the claim that is copied into is another one")
	}
}

func copyThereFails(t *testing.T, f *foreign) {
	f.source()
	dv := f.copyOf(f.there.namespace, "fast", nil)
	there := f.copied(dv)
	failed := transfer.Failed(transfer.Errorf(transfer.TooSmall, "the volume takes less"))
	f.there.play(there.Name, corev1.PodRunning, 1, &failed)
	if c := condition(f.phase("copy", cdiv1.Failed), cdiv1.DataVolumeRunning); !strings.Contains(c.Message, "TooSmall: the volume takes less") {
		t.Errorf("Running is %+v", c)
	}
	f.there.podGone(there.Name)
	f.phase("copy", cdiv1.Failed)
	f.must(f.Delete(t.Context(), dv))
	f.gone(there)
}

func copyThereAbandoned(t *testing.T, f *foreign) {
	f.source()
	dv := f.copyOf(f.there.namespace, "fast", nil)
	there := f.copied(dv)
	f.there.play(there.Name, corev1.PodRunning, 0, nil)
	f.must(f.Delete(t.Context(), dv))
	f.gone(there)
	f.there.podGone(there.Name)
}

// copyThatWasBegun has the source's namespace hold a copy, whole, when the DataVolume's class would clone.
func copyThatWasBegun(t *testing.T, f *foreign) {
	dv := f.copyOf(f.there.namespace, "local", nil) // which waits for its source
	f.waits("copy", "CloneSourceNotFound")
	there := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.there.namespace, Name: "clone-" + string(dv.UID), Labels: map[string]string{names.Domain + "clone-for": string(dv.UID)},
			Annotations: map[string]string{
				names.Domain + "clone-for": f.namespace + "/copy", datavolume.AnnotationCopiedFrom: f.there.namespace + "/before",
				datavolume.AnnotationPodPhase: "Succeeded", names.AnnotationDigest: "slipway1:33",
			},
		},
		Spec: *dv.Spec.PVC.DeepCopy(),
	}
	f.must(f.Create(t.Context(), there))
	volume := f.volume(there)
	f.source()
	f.gone(there)
	f.until("the new claim is there", func() bool { return f.claim("copy").UID != "" })
	if notes := f.claim("copy").Annotations; notes[datavolume.AnnotationCloneType] != "copy" || notes[datavolume.AnnotationCopiedFrom] != f.there.namespace+"/before" {
		t.Errorf("the claim has the annotations %v", notes)
	}
	f.bind("copy")
	if dv := f.phase("copy", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "slipway1:33" {
		t.Errorf("the DataVolume is %+v", dv.ObjectMeta)
	}
	if f.now(volume); len(volume.Annotations) > 0 {
		t.Errorf("the volume that has arrived bears %v", volume.Annotations)
	}
}

func copySnapshotThere(t *testing.T, f *foreign) {
	f.there.take(f.there.snapshot("kept"), "example.com/local", "")
	dv := f.create("copy", "fast", ofSnapshot(f.there.namespace), func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: "volumesnapshots/" + f.there.namespace + "/kept"}
	})
	there := f.copied(dv)
	name := "restored-" + string(dv.UID)
	if restored := f.there.claim(name); restored.Spec.DataSource == nil || restored.Spec.DataSource.Name != "kept" || len(restored.OwnerReferences) > 0 {
		t.Errorf("the snapshot became %+v", restored)
	}
	volume := f.volume(f.there.claim(there.Name))
	f.there.play(there.Name, corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:33"})
	f.gone(there)
	f.bind("copy")
	if dv := f.phase("copy", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "slipway1:33" || f.claim("copy").Spec.VolumeName != volume.Name {
		t.Errorf("the DataVolume is %+v", dv.ObjectMeta)
	}
	f.until("what was made of the snapshot goes", func() bool { left := f.there.claim(name); return left.UID == "" || left.DeletionTimestamp != nil })
}

func copySnapshotThereAbandoned(t *testing.T, f *foreign) {
	f.there.take(f.there.snapshot("kept"), "example.com/local", "")
	dv := f.create("copy", "fast", ofSnapshot(f.there.namespace), func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: "volumesnapshots/" + f.there.namespace + "/kept"}
	})
	there := f.copied(dv)
	restored := f.there.claim("restored-" + string(dv.UID))
	f.must(f.Delete(t.Context(), dv))
	f.gone(there)
	f.gone(restored)
	f.there.podGone(there.Name)
}

// copyThereWithoutSource has the snapshot go before and after the pod that copies is at work.
func copyThereWithoutSource(t *testing.T, f *foreign) {
	f.there.take(f.there.snapshot("kept"), "example.com/local", "")
	dv := f.create("copy", "fast", ofSnapshot(f.there.namespace), func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: "volumesnapshots/" + f.there.namespace + "/kept"}
	})
	there := f.copied(dv)
	kept := &snapshotv1.VolumeSnapshot{}
	f.must(f.Get(t.Context(), client.ObjectKey{Namespace: f.there.namespace, Name: "kept"}, kept))
	f.must(f.Delete(t.Context(), kept))
	f.pass(dv, &lagging.Client{}) // nothing tells of the snapshot
	f.waits("copy", "CloneSourceNotFound")
	f.there.bind("restored-" + string(dv.UID)) // it was made just then
	volume := f.volume(there)
	f.there.play(there.Name, corev1.PodRunning, 0, nil)
	f.phase("copy", cdiv1.CloneInProgress)
	f.there.play(there.Name, corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:33"})
	f.gone(there)
	f.bind("copy")
	if dv := f.phase("copy", cdiv1.Succeeded); dv.Annotations[names.AnnotationDigest] != "slipway1:33" || f.claim("copy").Spec.VolumeName != volume.Name {
		t.Errorf("the DataVolume is %+v", dv.ObjectMeta)
	}
}

// copyThereOfWhatMovedOn has a DataSource name another claim, and the one that is copied go.
func copyThereOfWhatMovedOn(t *testing.T, f *foreign) {
	f.source()
	golden := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Name: "golden", Namespace: f.there.namespace}}
	golden.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: f.there.namespace, Name: "base"}
	f.must(f.Create(t.Context(), golden))
	dv := f.create("copy", "fast", nil, func(dv *cdiv1.DataVolume) {
		dv.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: &golden.Namespace, Name: golden.Name}
		dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: f.there.namespace + "/base"}
	})
	there := f.copied(dv)
	f.volume(there)
	f.there.play(there.Name, corev1.PodRunning, 0, nil)
	f.phase("copy", cdiv1.CloneInProgress)
	base := f.there.claim("base")
	f.must(f.Delete(t.Context(), base)) // which the pod keeps
	golden.Spec.Source.PVC.Name = "next"
	f.must(f.Update(t.Context(), golden))
	f.pass(dv, &lagging.Client{})
	f.phase("copy", cdiv1.CloneInProgress)
	f.there.play(there.Name, corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:33"})
	f.gone(base)
	f.gone(there)
	f.bind("copy")
	f.phase("copy", cdiv1.Succeeded)
}

// copyThereWithoutSize has the source go that says how large the claim must be: its copy's volume is.
func copyThereWithoutSize(t *testing.T, f *foreign) {
	f.source()
	dv := f.copyOf(f.there.namespace, "fast", func(dv *cdiv1.DataVolume) {
		dv.Spec.Storage = &cdiv1.StorageSpec{StorageClassName: new("fast"), AccessModes: dv.Spec.PVC.AccessModes, VolumeMode: new(corev1.PersistentVolumeFilesystem)}
		dv.Spec.PVC = nil
	})
	there := f.copied(dv)
	asked := *there.Spec.Resources.Requests.Storage()
	f.volumeOf(there, asked)
	f.there.play(there.Name, corev1.PodRunning, 0, nil)
	f.phase("copy", cdiv1.CloneInProgress)
	base := f.there.claim("base")
	f.must(f.Delete(t.Context(), base))
	f.gone(base)
	f.there.play(there.Name, corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:33"})
	f.gone(there)
	f.until("the new claim is there", func() bool { return f.claim("copy").UID != "" })
	if now := f.claim("copy").Spec.Resources.Requests.Storage(); now.Cmp(asked) != 0 || now.Cmp(resource.MustParse("1Gi")) <= 0 {
		t.Errorf("the claim asks for %s, its volume has %s", now, &asked)
	}
}
