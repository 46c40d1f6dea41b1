//go:build integration

package populator_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
)

// What claims say, in the field's words.
const (
	annotationPhase   = "cdi.kubevirt.io/storage.pod.phase"
	annotationMessage = "cdi.kubevirt.io/storage.condition.running.message"
	annotationNode    = "volume.kubernetes.io/selected-node"
	annotationClone   = "cdi.kubevirt.io/clonePhase"
)

// TestClaimsAreFilled runs the controllers of populators and DataVolumes against a real API server; the
// tests play kubelet, storage, garbage collector and Kubernetes' controller of volumes.
func TestClaimsAreFilled(t *testing.T) {
	c := start(t)
	for name, test := range map[string]func(*testing.T, *world){
		"an import gives its volume to the claim":           importIsHandedOver,
		"a claim waits for its source":                      sourceComesLate,
		"a claim waits for its consumer's node":             consumerHasNode,
		"a claim may ask to be filled at once":              filledAtOnce,
		"storage that does not wait is filled in place":     filledInPlace,
		"in place a node is waited for, too":                inPlaceWaits,
		"a clone gives its volume to the claim":             cloneIsHandedOver,
		"an upload gives its volume to the claim":           uploadIsHandedOver,
		"what fails says so":                                importFails,
		"a claim that goes takes all along":                 claimGoes,
		"what has a volume keeps it":                        boundIsLeftAlone,
		"what somebody else binds is given up":              boundBySomebody,
		"what cannot be done is said":                       refusals,
		"a DataVolume of such a claim waits for it":         externalDataVolume,
		"a DataVolume of such a claim says what it awaits":  externalAwaitsConsumer,
		"a copied claim is filled anew":                     copiedClaim,
		"what filled a claim stays when that is asked for":  primeIsRetained,
		"a refused DataVolume is tried again until it fits": refusedByQuota,
		"what was just bound is filled in place":            boundJustNow,
		"what a pod may have written to is not filled":      boundAndUsed,
		"a driver that comes late is waited for":            driverComesLate,
		"a clone is made once there is a driver":            cloneAwaitsDriver,
		"a volume that was given is not made again":         givenAlready,
		"what is yet to be filled is not taken over":        takenOverUnfilled,
		"a DataVolume's own claim is not looked at":         claimOfImport,
		"a DataVolume of a claim that is not filled ends":   externalOfBound,
		"a target of an upload is filled in place":          targetIsFilled,
		"a target of an upload waits for its consumer":      targetWaitsForConsumer,
		"a target of an upload waits until nobody uses it":  targetInUse,
		"no image is written below its target's consumer":   targetOfConsumer,
		"a target of an upload is one no longer":            targetIsWithdrawn,
		"what is no target of an upload is left alone":      targetsThatAreNone,
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, c)) })
	}
}

const imports, clones = "VolumeImportSource", "VolumeCloneSource"

func importIsHandedOver(t *testing.T, w *world) {
	w.source()
	claim := w.create("fast", imports, func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"kubevirt.io/flavor": "mine"} })
	dv := w.prime(claim)
	if spec := dv.Spec; spec.Source.HTTP == nil || !*spec.Preallocation || spec.PVC.DataSourceRef != nil || *spec.PVC.StorageClassName != "fast" {
		t.Errorf("the DataVolume is %+v", spec)
	}
	w.event(claim, "CreatedPVCPrimeSuccessfully")
	volume := w.bind(dv.Name, nil)
	w.play(dv, corev1.PodRunning, nil)
	found := w.note("disk", annotationPhase, "Running")
	for name, want := range map[string]string{
		population.AnnotationUse: "true", population.AnnotationPrime: dv.Name, population.AnnotationProgress: "N/A",
		"cdi.kubevirt.io/storage.condition.running": "true", "cdi.kubevirt.io/storage.contentType": "kubevirt", "cdi.kubevirt.io/storage.preallocation.requested": "true",
	} {
		if found.Annotations[name] != want {
			t.Errorf("%s is %q, want %q", name, found.Annotations[name], want)
		}
	}
	w.play(dv, corev1.PodSucceeded, filled())
	w.handedOver(volume, claim)
	found = w.note("disk", annotationPhase, "Succeeded") // before anybody sees it bound
	if found.Annotations[names.AnnotationDigest] != "slipway1:00" || found.Annotations[population.AnnotationProgress] != "100.0%" || found.Annotations[annotationNode] != "node-1" {
		t.Errorf("the claim says %v", found.Annotations)
	}
	if l := found.Labels; l["instancetype.kubevirt.io/default-preference"] != "debian" || l["kubevirt.io/flavor"] != "mine" || l["example.com/other"] != "" {
		t.Errorf("the claim has the labels %v", l)
	}
	if w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv) != nil {
		t.Error("the DataVolume is gone before the claim is bound")
	}
	w.bind("disk", volume)
	w.gone(dv)
	w.event(claim, "importSucceeded")
}

func sourceComesLate(_ *testing.T, w *world) {
	claim := w.create("fast", imports, nil)
	w.note("disk", annotationMessage, "VolumeImportSource debian not found; the claim is filled once it exists")
	w.event(claim, "Pending")
	w.source()
	w.prime(claim)
	w.note("disk", annotationMessage, "")
}

func consumerHasNode(t *testing.T, w *world) {
	w.source()
	claim := w.create("local", imports, nil)
	w.note("disk", annotationMessage, "the claim is filled once a pod that uses it has a node")
	w.must(w.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"node-2"}}}`, annotationNode))))
	dv := w.prime(claim)
	w.until("its claim goes to the node", func() bool { return w.claim(dv.Name).Annotations[annotationNode] == "node-2" })
	w.play(dv, corev1.PodRunning, nil)
}

func filledAtOnce(_ *testing.T, w *world) {
	w.source()
	claim := w.create("local", imports, func(c *corev1.PersistentVolumeClaim) { c.Annotations[names.AnnotationBind] = "" })
	w.play(w.prime(claim), corev1.PodRunning, nil)
}

func filledInPlace(t *testing.T, w *world) {
	w.source()
	claim := w.create("nfs", imports, nil)
	dv := w.prime(claim)
	w.bind("disk", nil)
	pod := w.play(dv, corev1.PodRunning, nil)
	if source := pod.Spec.Volumes[0].PersistentVolumeClaim; source == nil || source.ClaimName != "disk" {
		t.Errorf("the pod writes to %+v", pod.Spec.Volumes)
	}
	found := w.note("disk", "cdi.kubevirt.io/storage.condition.running", "true")
	if found.Annotations[population.AnnotationUse] != "false" || !population.Unfilled(found) {
		t.Errorf("the claim says %v", found.Annotations)
	}
	if w.claim(dv.Name).UID != "" {
		t.Error("there is another claim")
	}
	w.play(dv, corev1.PodSucceeded, filled())
	found = w.note("disk", annotationPhase, "Succeeded")
	if found.Annotations[names.AnnotationDigest] != "slipway1:00" || found.Labels["instancetype.kubevirt.io/default-preference"] != "debian" {
		t.Errorf("the claim is %+v", found.ObjectMeta)
	}
	w.note("disk", population.AnnotationProgress, "100.0%")
	w.event(claim, "importSucceeded")
	w.gone(dv)
}

func inPlaceWaits(t *testing.T, w *world) {
	w.source()
	claim := w.create("path", imports, nil)
	dv := w.prime(claim)
	w.until("the DataVolume waits", func() bool {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
		return dv.Status.Phase == cdiv1.WaitForFirstConsumer
	})
	if dv.Status.ClaimName != "disk" {
		t.Errorf("the DataVolume is %+v", dv.Status)
	}
	w.must(w.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"node-2"}}}`, annotationNode))))
	w.play(dv, corev1.PodRunning, nil)
}

func cloneIsHandedOver(t *testing.T, w *world) {
	golden := w.create("local", imports, func(c *corev1.PersistentVolumeClaim) {
		c.Name, c.Spec.DataSourceRef = "golden", nil
		c.Annotations[names.AnnotationDigest] = "slipway1:22"
	})
	w.bind("golden", nil)
	w.must(w.Create(t.Context(), &cdiv1.VolumeCloneSource{
		ObjectMeta: metav1.ObjectMeta{Name: "debian", Namespace: w.namespace},
		Spec:       cdiv1.VolumeCloneSourceSpec{Source: corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: golden.Name}},
	}))
	claim := w.create("local", clones, nil)
	w.note("disk", annotationClone, "Pending")
	w.must(w.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"node-2"}}}`, annotationNode))))
	dv := w.prime(claim)
	pod := w.play(dv, corev1.PodRunning, nil)
	affinity := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if values := affinity[0].MatchExpressions; len(values) != 1 || values[0].Values[0] != "node-1" {
		t.Errorf("the clone is to lie on %+v, not where its source lies", affinity)
	}
	if other := w.claim(dv.Name); other.Annotations[annotationNode] != "" || other.Spec.DataSource == nil || other.Spec.DataSource.Name != "golden" {
		t.Errorf("the other claim is %+v", other)
	}
	w.note("disk", annotationClone, "CSIClone")
	volume := w.bind(dv.Name, nil)
	w.handedOver(volume, claim)
	found := w.note("disk", annotationClone, "Succeeded")
	if found.Annotations["cdi.kubevirt.io/cloneType"] != "csi-clone" || found.Annotations[names.AnnotationDigest] != "slipway1:22" {
		t.Errorf("the claim says %v", found.Annotations)
	}
	w.bind("disk", volume)
	w.gone(dv)
	w.event(claim, "CloneSucceeded")
}

func uploadIsHandedOver(t *testing.T, w *world) {
	w.must(w.Create(t.Context(), &cdiv1.VolumeUploadSource{ObjectMeta: metav1.ObjectMeta{Name: "debian", Namespace: w.namespace}}))
	claim := w.create("fast", cdiv1.VolumeUploadSourceRef, nil)
	dv := w.prime(claim)
	volume := w.bind(dv.Name, nil)
	pod := w.serve(dv)
	w.note("disk", annotationPhase, "Running")
	w.take(pod)
	w.handedOver(volume, claim)
	w.bind("disk", volume)
	w.gone(dv)
	w.event(claim, "UploadSucceeded")
	if found := w.claim("disk"); found.Annotations[annotationPhase] != "Succeeded" || found.Annotations[upload.AnnotationReady] != "" {
		t.Errorf("the claim says %v", found.Annotations)
	}
}

func importFails(_ *testing.T, w *world) {
	w.source()
	claim := w.create("fast", imports, nil)
	dv := w.prime(claim)
	w.bind(dv.Name, nil)
	failed := transfer.Failed(transfer.Errorf(transfer.ChecksumMismatch, "another file"))
	w.play(dv, corev1.PodRunning, &failed)
	w.note("disk", annotationPhase, "Failed")
	w.note("disk", annotationMessage, "ChecksumMismatch: another file")
	if text := w.event(claim, "importFailed"); !strings.Contains(text, "import into disk failed: ChecksumMismatch") {
		w.t.Errorf("the event says %q", text)
	}
}

func claimGoes(t *testing.T, w *world) {
	w.source()
	claim := w.create("nfs", imports, nil)
	dv := w.prime(claim)
	w.bind("disk", nil)
	w.play(dv, corev1.PodRunning, nil) // as long as it uses the claim, that stays
	w.must(w.Delete(t.Context(), claim))
	w.gone(dv)
}

// boundIsLeftAlone is of claims that may hold somebody's data.
func boundIsLeftAlone(t *testing.T, w *world) {
	w.source()
	for _, class := range []string{"fast", "nfs"} {
		w.create(class, imports, func(c *corev1.PersistentVolumeClaim) { c.Name, c.Spec.VolumeName = class, "somebodys" })
	}
	mark := w.create("fast", imports, func(c *corev1.PersistentVolumeClaim) { c.Name = "mark" })
	w.prime(mark) // by then the others were seen
	var all cdiv1.DataVolumeList
	w.must(w.List(t.Context(), &all, client.InNamespace(w.namespace)))
	if len(all.Items) != 1 || population.Chosen(w.claim("fast")) || population.Chosen(w.claim("nfs")) {
		t.Errorf("there is\n%s", w.all())
	}
}

func boundBySomebody(_ *testing.T, w *world) {
	w.source()
	claim := w.create("fast", imports, nil)
	dv := w.prime(claim)
	w.bind("disk", nil)
	w.event(claim, "NotPopulated")
	w.gone(dv)
	found := w.note("disk", "cdi.kubevirt.io/storage.condition.running.reason", "NotPopulated")
	if !population.Refused(found) || found.Annotations[population.AnnotationPrime] != "" || found.Annotations[population.AnnotationProgress] != "" {
		w.t.Errorf("the claim says %v", found.Annotations)
	}
}

func refusals(_ *testing.T, w *world) {
	w.create("nfs", clones, nil)
	w.note("disk", annotationMessage, "the claim's storage has no CSI driver, and binds the claim without its clone; clone with a DataVolume, or name a storage class that has one")
	if found := w.note("disk", population.AnnotationRefused, "prime-"+string(w.claim("disk").UID)); !population.Awaited(found) {
		w.t.Errorf("the claim says %v", found.Annotations)
	}
	w.create("none", imports, func(c *corev1.PersistentVolumeClaim) { c.Name = "classless" })
	w.note("classless", annotationMessage, "storage class none does not exist; the claim is filled once it does")
}

func externalDataVolume(t *testing.T, w *world) {
	w.source()
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: w.namespace}}
	dv.Spec.PVC = &corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("nfs"),
		Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		DataSourceRef: &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: imports, Name: "debian"},
	}
	w.must(w.Create(t.Context(), dv))
	w.bind("disk", nil)
	prime := w.prime(w.claim("disk"))
	w.play(prime, corev1.PodRunning, nil)
	if w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv)); dv.Status.Phase == cdiv1.Succeeded {
		t.Error("the DataVolume has succeeded before its claim is filled")
	}
	w.play(prime, corev1.PodSucceeded, filled())
	w.until("the DataVolume succeeds", func() bool {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
		return dv.Status.Phase == cdiv1.Succeeded
	})
}

// externalAwaitsConsumer is of a DataVolume whose claim is filled by another, once a pod that uses it has a node.
func externalAwaitsConsumer(t *testing.T, w *world) {
	w.source()
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: w.namespace}}
	dv.Spec.PVC = &corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("local"),
		Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		DataSourceRef: &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: imports, Name: "debian"},
	}
	w.must(w.Create(t.Context(), dv))
	becomes := func(want cdiv1.DataVolumePhase) {
		w.until("the DataVolume is "+string(want), func() bool {
			w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
			return dv.Status.Phase == want
		})
	}
	becomes(cdiv1.PendingPopulation)
	claim := w.claim("disk")
	w.must(w.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"node-2"}}}`, annotationNode))))
	prime := w.prime(claim)
	becomes(cdiv1.Pending)
	volume := w.bind(prime.Name, nil)
	w.play(prime, corev1.PodSucceeded, filled())
	w.handedOver(volume, claim)
	w.bind("disk", volume)
	becomes(cdiv1.Succeeded)
}

func copiedClaim(_ *testing.T, w *world) {
	w.source()
	claim := w.create("nfs", imports, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{annotationPhase: "Succeeded", population.AnnotationUse: "true", population.AnnotationFilledBy: "prime-of-another", population.AnnotationProgress: "100.0%"}
	})
	w.play(w.prime(claim), corev1.PodRunning, nil)
	w.note("disk", annotationPhase, "")
	w.note("disk", population.AnnotationUse, "false")
}

func primeIsRetained(t *testing.T, w *world) {
	w.source()
	claim := w.create("fast", imports, func(c *corev1.PersistentVolumeClaim) { c.Annotations[datavolume.AnnotationRetain] = "true" })
	dv := w.prime(claim)
	volume := w.bind(dv.Name, nil)
	pod := w.play(dv, corev1.PodSucceeded, filled())
	w.handedOver(volume, claim)
	w.bind("disk", volume)
	w.event(claim, "importSucceeded")
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if dv.DeletionTimestamp != nil || pod.DeletionTimestamp != nil {
		t.Error("what filled the claim goes")
	}
}

func refusedByQuota(t *testing.T, w *world) {
	w.source()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: w.namespace}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/datavolumes.cdi.kubevirt.io": resource.MustParse("0")},
	}}
	w.must(w.Create(t.Context(), quota))
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{"count/datavolumes.cdi.kubevirt.io": resource.MustParse("0")}
	w.must(w.Status().Update(t.Context(), quota))
	w.until("the quota counts", func() bool {
		probe := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: w.namespace}}
		return apierrors.IsForbidden(w.Create(t.Context(), probe, client.DryRunAll))
	})
	claim := w.create("fast", imports, nil)
	if text := w.event(claim, "ErrCreatingPVCPrime"); !strings.Contains(text, "exceeded quota") {
		t.Errorf("the event says %q", text)
	}
	w.must(w.Delete(t.Context(), quota))
	w.prime(claim)
}
