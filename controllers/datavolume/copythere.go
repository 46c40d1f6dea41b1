package datavolume

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// copyThere copies source into there, a claim of its namespace, when that is a copy, and ends the pass until it is whole. What was
// reached is noted on that claim.
func (r *Reconciler) copyThere(ctx context.Context, s *scope, source *origin, there *corev1.PersistentVolumeClaim) error {
	switch mark := there.Annotations[AnnotationCopiedFrom]; {
	case mark == "":
		return nil
	case there.Annotations[AnnotationPodPhase] == phaseSucceeded:
		r.copies.end(client.ObjectKeyFromObject(s.dv))
		return nil
	case mark != source.Mark(): // a DataSource moved on meanwhile
		return r.takeAway(ctx, s, there)
	case there.Annotations[AnnotationPodPhase] == phaseFailed:
		r.copies.end(client.ObjectKeyFromObject(s.dv))
		s.plan.kind, s.failed = kindCopy, &obstacle{reasonError, there.Annotations[AnnotationFailure]}
		return steps.ErrDone
	case there.DeletionTimestamp != nil:
		s.cloning = &obstacle{reasonCloning, fmt.Sprintf("PVC %s/%s, an earlier copy, is being deleted", there.Namespace, there.Name)}
		return steps.ErrDone
	}
	key := types.NamespacedName{Namespace: there.Namespace, Name: PodName(there.Name)}
	pod, err := get(ctx, r.live, key, &corev1.Pod{})
	if err != nil {
		return err
	}
	s.plan.kind, s.pod, s.last = kindCopy, pod, lastResult(pod)
	s.progress, s.told = r.listeners.Latest(client.ObjectKeyFromObject(s.dv), pod)
	if err := r.awaitWriters(ctx, s, source.Claim); err != nil {
		return err
	}
	return r.workThere(ctx, s, source, there)
}

// workThere makes the pod that copies into there, follows it, and notes how it has ended.
func (r *Reconciler) workThere(ctx context.Context, s *scope, source *origin, there *corev1.PersistentVolumeClaim) error {
	switch pod, last := s.pod, s.last; {
	case pod == nil:
		if err := r.createCopier(ctx, s, source, there); err != nil {
			return err
		}
	case pod.DeletionTimestamp != nil: // another is made when it is gone
	case pod.Status.Phase == corev1.PodSucceeded && last != nil:
		if err := r.recordThere(ctx, s, there, transfer.Result{Digest: last.Digest}); err != nil {
			return err
		}
		s.plan.kind, s.pod, s.last = kindClone, nil, nil
		return nil
	case last != nil && last.Reason != "" && !last.Retryable:
		s.failed = &obstacle{reasonError, failureText(*last)}
		if err := r.recordThere(ctx, s, there, *last); err != nil {
			return err
		}
	case pod.Status.Phase == corev1.PodFailed: // evicted, or the like
		if err := r.removeCopier(ctx, s); err != nil {
			return err
		}
	default:
		if err := r.listen(ctx, s); err != nil {
			return err
		}
	}
	return steps.ErrDone
}

// createCopier creates the pod that copies source into there.
func (r *Reconciler) createCopier(ctx context.Context, s *scope, source *origin, there *corev1.PersistentVolumeClaim) error {
	from, err := get(ctx, r.Client, source.Claim, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	now, err := get(ctx, r.live, client.ObjectKeyFromObject(there), &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	if from == nil || now == nil || now.UID != there.UID || now.DeletionTimestamp != nil || now.Annotations[AnnotationPodPhase] != "" {
		return errStale // it may be whole already
	}
	input := podInput{CopyFrom: from, Image: r.options.ImporterImage, Workload: s.workload, Config: s.config, Token: rand.Text()}
	if from.Spec.VolumeName == "" {
		if input.Affinity, err = r.nodesOfSource(ctx, source.Claim); err != nil {
			return err
		}
	}
	pod := buildCopier(s.dv, there, input)
	log.FromContext(ctx).Info("Copying in the source's namespace", "source", source.String(), "pod", pod.Name)
	return r.createThere(ctx, s, pod)
}

// buildCopier returns the pod that copies into there, a claim in the source's namespace. Nothing of the DataVolume comes into that
// but its name, and how large its disk is and whether it is reserved.
func buildCopier(dv *cdiv1.DataVolume, there *corev1.PersistentVolumeClaim, in podInput) *corev1.Pod {
	stranger := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: there.Name, Namespace: there.Namespace}}
	stranger.Spec.PVC = there.Spec.DeepCopy()
	stranger.Spec.PVC.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *sizeAsked(dv)}
	stranger.Spec.Preallocation = dv.Spec.Preallocation
	in.DataVolume, in.Claim = stranger, there
	pod := buildPod(in)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(there, corev1.SchemeGroupVersion.WithKind(kindClaim))}
	setAll(&pod.Labels, map[string]string{LabelCloneFor: string(dv.UID)})
	setAll(&pod.Annotations, map[string]string{annotationCloneFor: client.ObjectKeyFromObject(dv).String()})
	return pod
}

// recordThere notes on a claim in the source's namespace how the copy into it has ended, and removes the pod.
func (r *Reconciler) recordThere(ctx context.Context, s *scope, there *corev1.PersistentVolumeClaim, result transfer.Result) error {
	notes := map[string]string{AnnotationPodPhase: phaseSucceeded}
	if result.Reason != "" {
		notes[AnnotationPodPhase], notes[AnnotationFailure] = phaseFailed, failureText(result)
	}
	if result.Digest != "" {
		notes[names.AnnotationDigest] = result.Digest
	}
	log.FromContext(ctx).Info("Recording how the copy ended", "claim", there.Name, "phase", notes[AnnotationPodPhase], "digest", result.Digest, "reason", result.Reason)
	err := apply.Fields(ctx, r.Client, there, managerImporter, map[string]any{"metadata": map[string]any{"annotations": notes}})
	if err != nil {
		return fmt.Errorf("recording the end of the copy into claim %s/%s: %w", there.Namespace, there.Name, err)
	}
	setAll(&there.Annotations, notes)
	r.copies.end(client.ObjectKeyFromObject(s.dv))
	return r.removeCopier(ctx, s)
}

// removeCopier removes the pod that copies in the source's namespace.
func (r *Reconciler) removeCopier(ctx context.Context, s *scope) error {
	r.listeners.Stop(client.ObjectKeyFromObject(s.dv))
	if err := r.Delete(ctx, s.pod, client.Preconditions{UID: &s.pod.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s/%s: %w", s.pod.Namespace, s.pod.Name, err)
	}
	return nil
}
