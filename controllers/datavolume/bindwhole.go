package datavolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/steps"
)

// bindWhole has a claim bound that has its disk already, such as one of a restored VM, where its class waits for a consumer and the
// DataVolume asks not to: by a pod that does nothing else. It ends the pass until the claim is bound; then the pod goes.
func (r *Reconciler) bindWhole(ctx context.Context, s *scope) error {
	if !s.bindsWhole() || s.pod != nil && s.pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	if s.pod != nil {
		return steps.ErrDone
	}
	affinity, err := r.nodesOf(ctx, madeFrom(s.claim))
	if err != nil {
		return err
	}
	if affinity == nil {
		if node := s.dv.Annotations[annotationSelectedNode]; node != "" {
			affinity = onNode(node)
		}
	}
	pod := buildPod(podInput{DataVolume: s.dv, Claim: s.claim, Image: r.options.ImporterImage, Workload: s.workload, Binder: true, Affinity: affinity})
	log.FromContext(ctx).Info("Creating a pod by which the claim gets bound", "pod", pod.Name)
	if err := r.create(ctx, s, pod); err != nil {
		return err
	}
	return steps.ErrDone
}

// bindsWhole reports whether the claim has its disk and is yet to be bound, wherever that is. A binder's name is not that of an
// upload's pod.
func (s *scope) bindsWhole() bool {
	return s.done() && s.immediate() && s.plan.kind != kindUpload && s.claim.DeletionTimestamp == nil &&
		s.claim.Status.Phase == corev1.ClaimPending && s.claim.Spec.VolumeName == "" && s.claim.Annotations[annotationSelectedNode] == "" &&
		s.class != nil && ptr.Deref(s.class.VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer
}
