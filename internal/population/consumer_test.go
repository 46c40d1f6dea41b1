package population_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/internal/population"
)

func TestWhoUsesAClaim(t *testing.T) {
	disk := claim(func(c *corev1.PersistentVolumeClaim) { c.Name = "disk" })
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		counts bool
	}{
		"one with a node":        {func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "node-1", corev1.PodRunning }, true},
		"one without a node":     {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, true},
		"one that has ended":     {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		"one that has failed":    {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		"one of another claim":   {func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other" }, false},
		"the upload server":      {func(p *corev1.Pod) { p.OwnerReferences[0].UID = "filler" }, false},
		"one that gets it bound": {func(p *corev1.Pod) { p.Annotations = map[string]string{"kubevirt.io/ephemeral-provisioning": "true"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "user", OwnerReferences: []metav1.OwnerReference{{UID: "another", Controller: new(true)}}}}
			pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}
			c.change(&pod)
			if got := population.Consumer([]corev1.Pod{{}, pod}, disk, "filler"); got == "user" != c.counts {
				t.Errorf("it names %q", got)
			}
		})
	}
}

func TestWhatIsYetToBeMade(t *testing.T) {
	elsewhere := func(ref *corev1.TypedObjectReference) *corev1.TypedObjectReference {
		ref.Namespace = new("elsewhere")
		return ref
	}
	reference := func() *corev1.TypedObjectReference {
		return &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "disk"}
	}
	for name, c := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		awaits bool
	}{
		"a clone": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "disk"}
		}, true},
		"a clone by reference":   {func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef = reference() }, true},
		"of another namespace's": {func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef = elsewhere(reference()) }, false},
		"of a snapshot": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = reference()
			c.Spec.DataSourceRef.Kind = "VolumeSnapshot"
		}, false},
		"of another claim": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = reference()
			c.Spec.DataSourceRef.Name = "other"
		}, false},
		"one that is whole": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef, c.Status.Phase = reference(), corev1.ClaimBound
		}, false},
		"one that goes": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef, c.DeletionTimestamp = reference(), new(metav1.Now())
		}, false},
		"a claim of nothing": {func(*corev1.PersistentVolumeClaim) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			made := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
			c.change(made)
			if got := population.Awaits(made, "PersistentVolumeClaim", "disk"); got != c.awaits {
				t.Errorf("it is awaited: %t", got)
			}
		})
	}
}
