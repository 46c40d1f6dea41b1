package population

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/slipway-vm/slipway/internal/names"
)

// Consumer names one of pods that uses claim and has not ended, "" when none does. A pod counts before it has a node,
// for it may be given one at any moment. One that is there only for its claims to be bound does not, for it does nothing with them,
// nor one that filler controls, the uid of the DataVolume that fills claim.
func Consumer(pods []corev1.Pod, claim *corev1.PersistentVolumeClaim, filler types.UID) string {
	for n := range pods {
		pod := &pods[n]
		by := metav1.GetControllerOf(pod)
		switch {
		case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		case pod.Annotations[names.AnnotationTemp] == "true", by != nil && by.UID == filler:
		case Uses(pod, claim):
			return pod.Name
		}
	}
	return ""
}

// Uses reports whether claim is among the volumes of pod.
func Uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		source := volume.PersistentVolumeClaim
		return source != nil && source.ClaimName == claim.Name || volume.Ephemeral != nil && metav1.IsControlledBy(claim, pod)
	})
}

// Awaits reports whether claim is to be made from an object of its own namespace, a claim or a snapshot, and is not yet.
func Awaits(claim *corev1.PersistentVolumeClaim, kind, name string) bool {
	if claim.Status.Phase != corev1.ClaimPending || claim.DeletionTimestamp != nil {
		return false
	}
	from, ref := claim.Spec.DataSource, claim.Spec.DataSourceRef
	return from != nil && from.Kind == kind && from.Name == name ||
		ref != nil && ref.Kind == kind && ref.Name == name && ptr.Deref(ref.Namespace, claim.Namespace) == claim.Namespace
}
