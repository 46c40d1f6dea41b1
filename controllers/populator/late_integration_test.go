//go:build integration

package populator_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/population"
)

const annotationReason = "cdi.kubevirt.io/storage.condition.running.reason"

// bound makes a claim that Kubernetes has bound before anybody saw it.
func (w *world) bound(name, class string) *corev1.PersistentVolumeClaim {
	return w.create(class, imports, func(c *corev1.PersistentVolumeClaim) {
		c.Name, c.Spec.VolumeName, c.Annotations["pv.kubernetes.io/bound-by-controller"] = name, "pv-empty", "yes"
	})
}

func boundJustNow(t *testing.T, w *world) {
	w.source()
	claim := w.bound("disk", "nfs")
	w.play(w.prime(claim), corev1.PodRunning, nil)
	if found := w.note("disk", population.AnnotationUse, "false"); !population.Unfilled(found) {
		t.Errorf("the claim says %v", found.Annotations)
	}
	w.play(w.prime(w.bound("byhand", "none")), corev1.PodRunning, nil) // a volume made by hand needs no such class
	w.bound("other", "fast")                                           // whose driver does not bind such a claim: another volume was found for it
	w.note("other", annotationReason, "NotPopulated")
}

func boundAndUsed(t *testing.T, w *world) {
	w.source()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "writer", Namespace: w.namespace}, Spec: corev1.PodSpec{
		NodeName: "node-1", Containers: []corev1.Container{{Name: "writer", Image: "registry.local/writer"}},
		Volumes: []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}},
	}}
	w.must(w.Create(t.Context(), pod))
	claim := w.bound("disk", "nfs")
	found := w.note("disk", annotationReason, "NotPopulated")
	if message := found.Annotations[annotationMessage]; !strings.HasPrefix(message, "pod writer uses the claim") || !population.Refused(found) || population.Chosen(found) {
		t.Errorf("the claim says %v", found.Annotations)
	}
	w.event(claim, "NotPopulated")
}

// class makes one, and returns its CSIDriver to be made later.
func (w *world) class(name string) (driver *storagev1.CSIDriver) {
	w.must(w.Create(w.t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: name + ".example.com", VolumeBindingMode: new(storagev1.VolumeBindingImmediate),
	}))
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name + ".example.com"}}
}

func driverComesLate(t *testing.T, w *world) {
	w.source()
	driver := w.class("late")
	claim := w.create("late", imports, nil)
	dv := w.prime(claim)
	pod := w.play(dv, corev1.PodPending, nil)
	w.note("disk", population.AnnotationUse, "false")
	w.must(w.Create(t.Context(), driver))
	w.gone(dv)
	if w.claim("disk").Annotations[population.AnnotationUse] != "false" {
		t.Error("it is decided anew while the importer's pod is there")
	}
	w.must(w.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	w.note("disk", population.AnnotationUse, "true")
	w.until("another claim is made", func() bool { return w.claim(w.prime(claim).Name).UID != "" })
}

func cloneAwaitsDriver(t *testing.T, w *world) {
	driver := w.class("later")
	w.create("later", clones, nil)
	w.note("disk", annotationReason, "NotSupported")
	w.must(w.Create(t.Context(), driver))
	if found := w.note("disk", population.AnnotationUse, "true"); population.Refused(found) {
		t.Errorf("the claim says %v", found.Annotations)
	}
	w.note("disk", annotationMessage, "VolumeCloneSource debian not found; the claim is filled once it exists")
}

func givenAlready(t *testing.T, w *world) {
	w.source()
	claim := w.create("fast", imports, nil)
	dv := w.prime(claim)
	volume := w.bind(dv.Name, nil)
	w.play(dv, corev1.PodSucceeded, filled())
	w.handedOver(volume, claim)
	w.must(w.Delete(t.Context(), dv))
	w.gone(dv)
	w.must(w.Patch(t.Context(), w.claim("disk"), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"look":"again"}}}`))))
	w.pass()
	w.bind("disk", volume)
	w.note("mark", population.AnnotationUse, "true")
	if found := w.claim("disk"); found.Annotations[annotationPhase] != "Succeeded" || found.Annotations[population.AnnotationProgress] != "100.0%" || population.Refused(found) {
		t.Errorf("the claim says %v", found.Annotations)
	}
	if w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv) == nil {
		t.Error("the disk is made again")
	}
}

// pass waits until another claim was looked at, which comes after those that are there.
func (w *world) pass() {
	w.t.Helper()
	w.prime(w.create("fast", imports, func(c *corev1.PersistentVolumeClaim) { c.Name = "mark" }))
}

func takenOverUnfilled(_ *testing.T, w *world) {
	claim := w.create("fast", cdiv1.VolumeUploadSourceRef, nil) // its source is not there
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: w.namespace, Annotations: map[string]string{datavolume.AnnotationAdopt: "true"}}}
	dv.Spec.Source, dv.Spec.PVC = &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}, claim.Spec.DeepCopy()
	dv.Spec.PVC.DataSourceRef = nil
	w.must(w.Create(w.t.Context(), dv))
	w.until("the DataVolume says why", func() bool {
		w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(dv), dv))
		return len(dv.Status.Conditions) > 0 && strings.Contains(dv.Status.Conditions[0].Message+dv.Status.Conditions[1].Message+dv.Status.Conditions[2].Message, "yet to be filled by its VolumeUploadSource")
	})
	if found := w.claim("disk"); found.Annotations[annotationPhase] != "" || len(found.OwnerReferences) > 0 {
		w.t.Errorf("the claim is %+v", found.ObjectMeta)
	}
}

// claimOfImport is of a claim that CDI has left unfinished.
func claimOfImport(t *testing.T, w *world) {
	w.source()
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "import", Namespace: w.namespace}}
	dv.Spec.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://example.com/debian.qcow2"}}
	dv.Spec.PVC = &corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("fast"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	w.must(w.Create(t.Context(), dv))
	w.create("fast", imports, func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	})
	w.pass()
	if found := w.claim("disk"); population.Chosen(found) {
		t.Errorf("the claim says %v", found.Annotations)
	}
}

// externalOfBound is of a DataVolume whose claim its user has bound by hand.
func externalOfBound(t *testing.T, w *world) {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: w.namespace}}
	dv.Spec.PVC = &corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("fast"), VolumeName: "mine",
		Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		DataSourceRef: &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: imports, Name: "debian"},
	}
	w.must(w.Create(t.Context(), dv))
	w.until("its claim is there", func() bool { return w.claim("disk").UID != "" })
	w.must(w.Status().Patch(t.Context(), w.claim("disk"), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`))))
	w.until("the DataVolume succeeds", func() bool {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
		return dv.Status.Phase == cdiv1.Succeeded
	})
}
