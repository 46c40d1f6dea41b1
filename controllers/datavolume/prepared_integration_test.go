//go:build integration

package datavolume_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// volume makes a volume that is prepared for claim.
func (w *world) volume(claim string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	w.t.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{GenerateName: "prepared-"}}
	volume.Spec = corev1.PersistentVolumeSpec{
		StorageClassName: "fast", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "fast.example.com", VolumeHandle: claim}},
		ClaimRef:               &corev1.ObjectReference{Namespace: w.namespace, Name: claim},
	}
	if change != nil {
		change(volume)
	}
	w.must(w.Create(w.t.Context(), volume))
	w.t.Cleanup(func() {
		w.must(client.IgnoreNotFound(w.Delete(context.Background(), volume)))
		w.unprotect(volume)
	})
	return volume
}

// unprotect takes from an object that goes what keeps it: nobody plays the protection of storage here.
func (w *world) unprotect(object client.Object) {
	w.t.Helper()
	bare := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	w.must(client.IgnoreNotFound(w.Patch(context.Background(), object, bare)))
}

// noPod makes sure that nothing fills a claim.
func (w *world) noPod() {
	w.t.Helper()
	var pods corev1.PodList
	w.must(w.List(w.t.Context(), &pods, client.InNamespace(w.namespace)))
	if len(pods.Items) > 0 {
		w.t.Errorf("there is pod %s", pods.Items[0].Name)
	}
}

func static(dv *cdiv1.DataVolume) {
	dv.Annotations = map[string]string{datavolume.AnnotationStatic: ""}
}

// What lies on a volume that is prepared for a DataVolume's claim is never written over.
func takesPreparedVolume(t *testing.T, w *world) {
	volume := w.volume("disk", nil)
	w.create("disk", "fast", http(), static)
	w.until("the claim is made for the volume", func() bool { return w.claim("disk").Spec.VolumeName == volume.Name })
	dv := w.phase("disk", cdiv1.Pending)
	if c := condition(dv, cdiv1.DataVolumeBound); !strings.Contains(c.Message, volume.Name) {
		t.Errorf("Bound is %+v", c)
	}
	w.bind("disk")
	w.phase("disk", cdiv1.Succeeded)
	w.until("the DataVolume is noted as prepared", func() bool { return w.dv("disk").Annotations[datavolume.AnnotationPrePopulated] == "disk" })
	if got := w.claim("disk").Annotations; got[datavolume.AnnotationPopulatedFor] != "disk" || got["cdi.kubevirt.io/storage.persistentVolumeList"] != "" {
		t.Errorf("the claim has %v", got)
	}
	w.noPod()
}

// A clone whose source is not there has its disk on the volume.
func takesPreparedClone(t *testing.T, w *world) {
	w.volume("disk", nil)
	w.create("disk", "fast", &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: w.namespace, Name: "gone"}}, static)
	w.bind("disk")
	w.phase("disk", cdiv1.Succeeded)
	if w.claim("disk").Spec.DataSource != nil {
		t.Error("the claim is to be cloned")
	}
}

// A volume that does not fit is told of, and the disk is imported elsewhere.
func passesUnfitVolume(t *testing.T, w *world) {
	w.volume("disk", func(v *corev1.PersistentVolume) { v.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("1Mi") })
	w.create("disk", "fast", http(), static)
	w.bind("disk")
	w.pod("disk")
	if name := w.claim("disk").Spec.VolumeName; name != "" {
		t.Errorf("the claim is of volume %s", name)
	}
}

// A claim whose volume goes before it is bound is made anew.
func forgetsGoneVolume(t *testing.T, w *world) {
	volume := w.volume("disk", nil)
	dv := newDataVolume(w.namespace, "disk")
	static(dv)
	w.must(w.Create(t.Context(), dv))
	w.until("the claim is made for the volume", func() bool { return w.claim("disk").Spec.VolumeName == volume.Name })
	before := w.claim("disk").UID
	w.must(w.Delete(t.Context(), volume))
	w.unprotect(volume)
	w.until("the claim is another", func() bool {
		now := w.claim("disk")
		if now.DeletionTimestamp != nil {
			w.unprotect(now)
		}
		return now.UID != "" && now.UID != before && now.Spec.VolumeName == ""
	})
}

// A DataVolume of a backup waits for its claim, and takes it as filled.
func waitsForRestoredClaim(t *testing.T, w *world) {
	w.create("disk", "fast", http(), func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{datavolume.AnnotationPrePopulated: "disk"}
	})
	dv := w.phase("disk", cdiv1.Pending)
	if w.claim("disk").UID != "" || !strings.Contains(condition(dv, cdiv1.DataVolumeBound).Message, "is not there yet") {
		t.Errorf("it does not wait: %+v", dv.Status)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "disk"}, Spec: *dv.Spec.PVC.DeepCopy()}
	claim.Annotations = map[string]string{datavolume.AnnotationPopulatedFor: "disk"}
	w.must(w.Create(t.Context(), claim))
	dv = w.phase("disk", cdiv1.Succeeded)
	if !metav1.IsControlledBy(w.claim("disk"), dv) {
		t.Error("the claim is not the DataVolume's")
	}
	w.noPod()
}

// A claim that has its disk, as that of a restored VM, is bound at once by a pod where the DataVolume asks for that.
func bindsRestoredClaim(t *testing.T, w *world) {
	for name, immediate := range map[string]bool{"asks": true, "waits": false} {
		w.create(name, "local", http(), func(dv *cdiv1.DataVolume) {
			dv.Annotations = map[string]string{datavolume.AnnotationPrePopulated: name}
			if immediate {
				dv.Annotations[names.AnnotationBind] = "true"
			}
		})
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: *w.dv(name).Spec.PVC.DeepCopy()}
		claim.Annotations = map[string]string{datavolume.AnnotationPopulatedFor: name}
		w.must(w.Create(t.Context(), claim))
		w.phase(name, cdiv1.Succeeded)
	}
	pod := w.pod("asks")
	if command := pod.Spec.Containers[0].Command; !slices.Equal(command, []string{"/slipway", "version"}) {
		t.Errorf("the pod does %v to a disk that is there", command)
	}
	w.bind("asks")
	w.podGone("asks")
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "importer-waits"}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("a claim that nobody asks to be bound has a pod: %v", err)
	}
}

// config makes a CDIConfig for one case.
func (w *world) config(spec cdiv1.CDIConfigSpec) {
	w.t.Helper()
	config := &cdiv1.CDIConfig{ObjectMeta: metav1.ObjectMeta{Name: names.CDIConfigName}, Spec: spec}
	w.must(w.Create(w.t.Context(), config))
	w.t.Cleanup(func() { w.deleted(config) })
	w.seen(config)
}

// With the gate DataVolumeClaimAdoption a claim that is there is taken over.
func adoptsByGate(t *testing.T, w *world) {
	w.config(cdiv1.CDIConfigSpec{FeatureGates: []string{"DataVolumeClaimAdoption"}})
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "disk"}, Spec: *newDataVolume(w.namespace, "disk").Spec.PVC}
	w.must(w.Create(t.Context(), claim))
	w.create("disk", "fast", http(), nil)
	w.phase("disk", cdiv1.Succeeded)
	w.noPod()
}

// A DataVolume goes after its time, and its claim stays with its owner; also when it is broken off between the two.
func goesAfterItsTime(t *testing.T, w *world) {
	w.config(cdiv1.CDIConfigSpec{DataVolumeTTLSeconds: new(int32(0))})
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "owner"}}
	w.must(w.Create(t.Context(), owner))
	made := w.create("disk", "fast", http(), func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{datavolume.AnnotationCollect: "true"}
		dv.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	})
	w.create("stays", "fast", http(), nil)
	for _, name := range []string{"disk", "stays"} {
		w.bind(name)
		w.play(name, corev1.PodSucceeded, 0, &transfer.Result{})
	}
	w.until("the DataVolume is gone", func() bool {
		return apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(made), &cdiv1.DataVolume{}))
	})
	claim := w.claim("disk")
	if len(claim.OwnerReferences) != 1 || claim.OwnerReferences[0].UID != owner.UID || claim.Annotations["cdi.kubevirt.io/garbageCollected"] != "true" {
		t.Errorf("the claim is %+v", claim.ObjectMeta)
	}
	w.phase("stays", cdiv1.Succeeded)
}

// Killed between the two writes, the next pass ends what was begun.
func endsCollecting(t *testing.T, w *world) {
	w.config(cdiv1.CDIConfigSpec{DataVolumeTTLSeconds: new(int32(0))})
	dv := newDataVolume(w.namespace, "disk")
	dv.Annotations = map[string]string{datavolume.AnnotationCollect: "true"}
	w.must(w.Create(t.Context(), dv))
	dv.Status = cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded, ClaimName: "disk"}
	w.must(w.Status().Update(t.Context(), dv))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "disk"}, Spec: *dv.Spec.PVC.DeepCopy()}
	claim.Annotations = map[string]string{"cdi.kubevirt.io/garbageCollected": "true", datavolume.AnnotationPodPhase: "Succeeded"}
	w.must(w.Create(t.Context(), claim))
	w.bind("disk")
	w.pass(dv, &lagging.Client{})
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(dv), &cdiv1.DataVolume{}); !apierrors.IsNotFound(err) {
		t.Errorf("the DataVolume is still there: %v", err)
	}
	if w.claim("disk").DeletionTimestamp != nil {
		t.Error("the claim goes, too")
	}
}
