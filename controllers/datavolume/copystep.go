package datavolume

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// tellFallback tells of a claim that was just made why it is a copy.
func (r *Reconciler) tellFallback(s *scope) {
	for _, why := range []fallback{fallbacks.snapshots, fallbacks.mode, fallbacks.class, fallbacks.driver} {
		if s.claim.Annotations[annotationFallback] == why.message {
			r.events.Eventf(s.claim, s.dv, corev1.EventTypeWarning, why.reason, eventAction, "%s", why.message)
		}
	}
}

// recognizeCopy makes of the plan of a clone that of a copy when a pod fills the claim.
func (r *Reconciler) recognizeCopy(ctx context.Context, s *scope) error {
	source := s.copySource()
	if source == nil {
		return nil
	}
	s.plan.kind = kindCopy
	if s.claim.Status.Phase == corev1.ClaimBound {
		return nil
	}
	nodes, err := r.nodesOfSource(ctx, source.Claim)
	s.pinned = nodes != nil
	return err
}

// awaitSource ends the pass of a copy while its source is in use.
func (r *Reconciler) awaitSource(ctx context.Context, s *scope) error {
	source := s.copySource()
	if source == nil {
		return nil
	}
	if s.done() || s.claim.Annotations[AnnotationPodPhase] == phaseFailed {
		r.copies.end(client.ObjectKeyFromObject(s.dv))
		return nil
	}
	switch {
	case s.waitsForConsumer():
		return nil
	case s.pod != nil && s.pod.DeletionTimestamp != nil: // stopped: what it has made is of no use
		return steps.ErrDone
	}
	return r.awaitWriters(ctx, s, source.Claim)
}

// awaitWriters ends the pass while a pod may write to the claim that is copied. A copy under which one did is stopped, and begins
// anew when it has gone.
func (r *Reconciler) awaitWriters(ctx context.Context, s *scope, claim types.NamespacedName) error {
	r.copies.begin(client.ObjectKeyFromObject(s.dv), claim) // before it is looked: who comes later is told of
	writer, err := r.writer(ctx, claim, s.pod)
	if err != nil || writer == "" {
		return err
	}
	if s.pod != nil && s.pod.DeletionTimestamp == nil {
		log.FromContext(ctx).Info("Stopping the copy, its source is in use", "pod", s.pod.Name, "user", writer)
		if err := r.Delete(ctx, s.pod, client.Preconditions{UID: &s.pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s: %w", s.pod.Name, err)
		}
	}
	r.listeners.Stop(client.ObjectKeyFromObject(s.dv))
	s.plan.kind, s.pod, s.last, s.progress = kindCopy, nil, nil, transfer.Progress{}
	s.cloning = &obstacle{reasonSourceInUse, fmt.Sprintf("pod %s/%s using PersistentVolumeClaim %s; it is copied once the pod has ended", claim.Namespace, writer, claim.Name)}
	s.result.RequeueAfter = takenRetry
	return steps.ErrDone
}

// writer names a pod that may write to a claim now, or that could while it was copied by copier, nil for nobody yet. It reads past
// the cache, which does not have the pods of others.
func (r *Reconciler) writer(ctx context.Context, claim types.NamespacedName, copier *corev1.Pod) (string, error) {
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(claim.Namespace)); err != nil {
		return "", fmt.Errorf("looking for pods that use claim %s: %w", claim, err)
	}
	for n := range pods.Items {
		pod := &pods.Items[n]
		if mayWrite(pod, claim.Name) && overlaps(pod, copier) {
			return pod.Name, nil
		}
	}
	return "", nil
}

// mayWrite reports whether a container of pod has the claim otherwise than to read it.
func mayWrite(pod *corev1.Pod, claim string) bool {
	volumes := map[string]bool{}
	for _, volume := range pod.Spec.Volumes {
		if from := volume.PersistentVolumeClaim; from != nil && from.ClaimName == claim && !from.ReadOnly {
			volumes[volume.Name] = true
		}
	}
	writes := func(container corev1.Container) bool {
		return slices.ContainsFunc(container.VolumeMounts, func(at corev1.VolumeMount) bool { return volumes[at.Name] && !at.ReadOnly }) ||
			slices.ContainsFunc(container.VolumeDevices, func(at corev1.VolumeDevice) bool { return volumes[at.Name] })
	}
	return slices.ContainsFunc(pod.Spec.InitContainers, writes) || slices.ContainsFunc(pod.Spec.Containers, writes)
}

// overlaps reports whether pod was there while copier was, or is there when copier is nil.
func overlaps(pod, copier *corev1.Pod) bool {
	end, ended := endOfPod(pod)
	if copier == nil {
		return !ended
	}
	stopped, done := endOfPod(copier)
	before := ended && !end.After(copier.CreationTimestamp.Time)
	after := done && pod.CreationTimestamp.After(stopped)
	return !before && !after
}

// endOfPod is when the last container of a pod that has ended did so, as far as it is known.
func endOfPod(pod *corev1.Pod) (last time.Time, ended bool) {
	for _, status := range pod.Status.ContainerStatuses {
		if end := status.State.Terminated; end != nil && end.FinishedAt.After(last) {
			last = end.FinishedAt.Time
		}
	}
	return last, pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// prepareCopy adds to input what is copied, and the node that the DataVolume names where that is all the same.
func (r *Reconciler) prepareCopy(ctx context.Context, s *scope, input *podInput) error {
	source := s.copySource()
	if source == nil {
		return nil
	}
	var err error
	if input.CopyFrom, err = get(ctx, r.Client, source.Claim, &corev1.PersistentVolumeClaim{}); err != nil {
		return err
	}
	if input.CopyFrom == nil {
		s.cloning = &obstacle{reasonSourceMissing, fmt.Sprintf("Source PVC %s not found; it is copied once it exists", source.Claim)}
		s.result.RequeueAfter = takenRetry
		return steps.ErrDone
	}
	if input.CopyFrom.Spec.VolumeName == "" {
		if input.Affinity, err = r.nodesOfSource(ctx, source.Claim); err != nil {
			return err
		}
	}
	if node := s.dv.Annotations[annotationSelectedNode]; node != "" && !s.pinned && s.claim.Status.Phase != corev1.ClaimBound {
		input.Affinity = onNode(node)
	}
	return nil
}
