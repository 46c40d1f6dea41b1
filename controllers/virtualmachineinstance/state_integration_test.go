//go:build integration

package virtualmachineinstance

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
)

func (w *world) stateClaims() []corev1.PersistentVolumeClaim {
	w.t.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.vmi.Namespace)))
	return list.Items
}

// keeps gives the VMI something to keep, and the cluster a class for it, whose name it returns.
func (w *world) keeps() string {
	w.t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{GenerateName: "for-vms-", Annotations: map[string]string{names.AnnotationDefaultVirtClass: "true"}},
		Provisioner: "somebody", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	w.must(w.Create(w.t.Context(), class))
	w.t.Cleanup(func() { _ = w.Delete(context.Background(), class) })
	w.vmi.Spec.Domain.Devices.TPM = &virtv1.TPMDevice{Persistent: new(true)}
	w.must(w.Update(w.t.Context(), w.vmi))
	return class.Name
}

// mounted is the name of the claim that the VMI's launcher keeps state on.
func (w *world) mounted() string {
	w.t.Helper()
	pods := w.pods()
	if len(pods) != 1 {
		w.t.Fatalf("%d pods; the VMI's conditions: %+v", len(pods), w.vmi.Status.Conditions)
	}
	for _, volume := range pods[0].Spec.Volumes {
		if volume.Name == names.VolumeState {
			return volume.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// A VMI has one claim for its state, also while the cache does not show it.
func unseenStateClaim(t *testing.T, w *world) {
	class := w.keeps()
	w.pass()
	claims := w.stateClaims()
	if len(claims) != 1 || claims[0].Spec.StorageClassName == nil || *claims[0].Spec.StorageClassName != class || !metav1.IsControlledBy(&claims[0], w.vmi) {
		t.Fatalf("claims %+v", claims)
	}
	if got := w.mounted(); got != claims[0].Name {
		t.Errorf("the launcher keeps state on %q, want %q", got, claims[0].Name)
	}
	p := w.pods()[0]
	w.pass(&p, &claims[0])
	if again := w.stateClaims(); len(again) != 1 {
		t.Errorf("%d claims", len(again))
	}
}

// State that goes with an earlier VM of the name, or is kept for it, is not this one's.
func stateClaimOfAnEarlierVM(t *testing.T, w *world) {
	earlier := pod.StateClaim(w.vmi, w.keeps())
	kept := earlier.DeepCopy()
	earlier.OwnerReferences[0].UID = "of-an-earlier-one"
	w.must(w.Create(t.Context(), earlier))
	kept.OwnerReferences = nil
	keep.For(kept, "of-an-earlier-one")
	w.must(w.Create(t.Context(), kept))
	w.pass()
	if got := w.mounted(); got == "" || got == earlier.Name || got == kept.Name {
		t.Errorf("state is on %q", got)
	}
}

// State that a user brought, as from a backup, is taken.
func stateClaimOfAUser(t *testing.T, w *world) {
	brought := pod.StateClaim(w.vmi, w.keeps())
	brought.OwnerReferences = nil
	w.must(w.Create(t.Context(), brought))
	w.pass()
	if got := w.mounted(); got != brought.Name || len(w.stateClaims()) != 1 {
		t.Errorf("state is on %q of %d claims, want %q", got, len(w.stateClaims()), brought.Name)
	}
}
