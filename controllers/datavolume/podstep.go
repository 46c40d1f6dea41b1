package datavolume

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// noteEnd records on the claim what has ended: a filled claim, or one that cannot be filled.
func (r *Reconciler) noteEnd(ctx context.Context, s *scope) error {
	if s.done() {
		return nil
	}
	if message, phase := s.claim.Annotations[AnnotationFailure], s.claim.Annotations[AnnotationPodPhase]; phase == phaseFailed {
		s.failed = &obstacle{reasonError, message}
		return nil
	}
	switch {
	case s.plan.kind == kindExternal && (population.Awaited(s.claim) || population.Chosen(s.claim)): // its populator records it
	case !s.plan.pods():
		if s.claim.Status.Phase == corev1.ClaimBound {
			return r.record(ctx, s, r.cloned(ctx, s))
		}
	case s.pod == nil:
	case s.pod.Status.Phase == corev1.PodSucceeded && s.last != nil:
		return r.record(ctx, s, transfer.Result{Digest: s.last.Digest, Labels: s.last.Labels})
	case s.last != nil && s.last.Reason != "" && !s.last.Retryable:
		s.failed = &obstacle{reasonError, failureText(*s.last)}
		return r.record(ctx, s, *s.last)
	}
	return nil
}

// cloned returns the result of a clone: the source's content, when it is of the same size. A source that was cloned
// through a snapshot may be another disk by now: what it was is noted on the snapshot.
func (r *Reconciler) cloned(ctx context.Context, s *scope) transfer.Result {
	if isCopy(s.claim) { // which came from another namespace, with its name
		return transfer.Result{Digest: s.claim.Annotations[names.AnnotationDigest]}
	}
	source := s.originOfClaim()
	switch {
	case source == nil:
		return transfer.Result{}
	case source.InSnapshot():
		return r.clonedSnapshot(ctx, s, source.Snapshot)
	}
	from, err := get(ctx, r.Client, source.Claim, &corev1.PersistentVolumeClaim{})
	if err != nil || from == nil || from.Status.Capacity.Storage().Cmp(*s.claim.Status.Capacity.Storage()) != 0 {
		return transfer.Result{} // without the digest steps are not cached, and nothing else
	}
	return transfer.Result{Digest: from.Annotations[names.AnnotationDigest]}
}

// record writes onto the claim how its filling has ended, and the content's name onto both.
func (r *Reconciler) record(ctx context.Context, s *scope, result transfer.Result) error {
	notes := outcome(s, result)
	labels := asked(s.claim.Labels, result.Labels)
	log.FromContext(ctx).Info("Recording how the claim's filling ended", "phase", notes[AnnotationPodPhase], "digest", result.Digest, "reason", result.Reason)
	setAll(&s.claim.Labels, labels)
	if err := r.annotate(ctx, s, result.Digest); err != nil {
		return err
	}
	meta := map[string]any{"annotations": notes}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	err := apply.Fields(ctx, r.Client, s.claim, managerImporter, map[string]any{"metadata": meta})
	if err != nil {
		return fmt.Errorf("recording the end of filling claim %s: %w", s.claim.Name, err)
	}
	setAll(&s.claim.Annotations, notes)
	return nil
}

// outcome is what is written onto the claim of how its filling has ended.
func outcome(s *scope, result transfer.Result) map[string]string {
	notes := map[string]string{AnnotationPodPhase: phaseSucceeded, AnnotationRestarts: strconv.Itoa(int(s.restarts()))}
	if result.Reason != "" {
		notes[AnnotationPodPhase] = phaseFailed
		notes[AnnotationFailure] = failureText(result)
	}
	// A driver's clone takes what its driver gives it.
	if written := s.plan.pods() || isCopy(s.claim); written && result.Reason == "" && preallocates(s.dv, &s.config) {
		notes[AnnotationPreallocated] = valueTrue
	}
	if result.Digest != "" {
		notes[names.AnnotationDigest] = result.Digest
	}
	return notes
}

// asked returns the labels that an image asks for and nobody has set otherwise.
func asked(have, wanted map[string]string) map[string]string {
	labels := map[string]string{}
	for name, value := range wanted {
		if _, set := have[name]; !set {
			labels[name] = value
		}
	}
	return labels
}

// annotate puts the digest, and what the source says of the disk, onto the DataVolume.
func (r *Reconciler) annotate(ctx context.Context, s *scope, digest string) error {
	meta := map[string]any{"labels": clonesource.Defaults(s.claim.Labels)}
	if digest != "" {
		meta["annotations"] = map[string]string{names.AnnotationDigest: digest}
	}
	if len(clonesource.Defaults(s.claim.Labels)) == 0 && digest == "" {
		return nil
	}
	if err := apply.Fields(ctx, r.Client, s.dv, managerImporter, map[string]any{"metadata": meta}); err != nil {
		return fmt.Errorf("annotating DataVolume %s: %w", s.dv.Name, err)
	}
	return nil
}

// cleanUp removes the pod of a filling that has ended, or one that cannot go on.
func (r *Reconciler) cleanUp(ctx context.Context, s *scope) error {
	ended := s.done() || s.failed != nil
	if !ended && (s.pod == nil || s.pod.Status.Phase != corev1.PodFailed) {
		return nil
	}
	r.listeners.Stop(client.ObjectKeyFromObject(s.dv))
	if err := r.endUpload(ctx, s); err != nil {
		return err
	}
	retain := s.done() && s.dv.Annotations[AnnotationRetain] == valueTrue
	if s.pod != nil && s.pod.DeletionTimestamp == nil && !retain {
		log.FromContext(ctx).Info("Deleting the importer pod", "pod", s.pod.Name, "phase", s.pod.Status.Phase)
		if err := r.Delete(ctx, s.pod, client.Preconditions{UID: &s.pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s: %w", s.pod.Name, err)
		}
	}
	if ended {
		if err := r.removeRestored(ctx, s); err != nil {
			return err
		}
		if err := r.collect(ctx, s); err != nil {
			return err
		}
	}
	return steps.ErrDone
}

// ensurePod creates the pod that fills the claim, or that only gets a clone bound: on its source's
// node, or on the one that the DataVolume names where that is all the same.
func (r *Reconciler) ensurePod(ctx context.Context, s *scope) error {
	if s.pod != nil || s.waitsForConsumer() || s.claim.Status.Phase == corev1.ClaimLost {
		return nil
	}
	input := podInput{DataVolume: s.dv, Claim: s.claim, Image: r.options.ImporterImage, Workload: s.workload, Config: s.config, Token: rand.Text()}
	if !s.plan.pods() {
		if s.claim.Status.Phase == corev1.ClaimBound || s.claim.Spec.VolumeName != "" || !s.immediate() {
			return nil // its provisioner works, or its volume is there
		}
		if err := r.prepareBinder(ctx, s, &input); err != nil {
			return err
		}
	}
	if err := r.checkUnfilled(ctx, s); err != nil {
		return err
	}
	for _, prepare := range []func(context.Context, *scope, *podInput) error{r.findPlaces, r.findProxy, r.prepareUpload} {
		if err := prepare(ctx, s, &input); err != nil {
			return err
		}
	}
	if err := r.prepareCopy(ctx, s, &input); err != nil {
		return err
	}
	pod := buildPod(input)
	log.FromContext(ctx).Info("Creating the importer pod", "pod", pod.Name)
	if err := r.create(ctx, s, pod); err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodPending
	s.pod = pod
	return nil
}

// prepareBinder makes input that of a pod which only gets a clone bound.
func (r *Reconciler) prepareBinder(ctx context.Context, s *scope, input *podInput) error {
	input.Binder = true
	var err error
	input.Affinity, err = r.nodesOf(ctx, s.originOfClaim())
	if node := s.dv.Annotations[annotationSelectedNode]; input.Affinity == nil && node != "" {
		input.Affinity = onNode(node)
	}
	return err
}

// affinityOf places a clone of a node's volume onto that node.
func (r *Reconciler) affinityOf(ctx context.Context, source types.NamespacedName) (*corev1.NodeAffinity, error) {
	from, err := get(ctx, r.Client, source, &corev1.PersistentVolumeClaim{})
	if err != nil || from == nil || from.Spec.VolumeName == "" {
		return nil, err
	}
	volume, err := get(ctx, r.live, types.NamespacedName{Name: from.Spec.VolumeName}, &corev1.PersistentVolume{})
	if err != nil || volume == nil || volume.Spec.NodeAffinity == nil {
		return nil, err
	}
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: volume.Spec.NodeAffinity.Required}, nil
}

// listen follows the progress of a pod that runs. The pod's password is read past the
// cache, which keeps no environment of pods, once for each pod.
func (r *Reconciler) listen(ctx context.Context, s *scope) error {
	if !s.plan.pods() || s.pod == nil || s.pod.Status.Phase != corev1.PodRunning || s.pod.Status.PodIP == "" || s.pod.DeletionTimestamp != nil {
		return nil
	}
	key := client.ObjectKeyFromObject(s.dv)
	if r.listeners.Follows(key, s.pod.UID) {
		return nil
	}
	pod, err := get(ctx, r.live, client.ObjectKeyFromObject(s.pod), &corev1.Pod{})
	if err != nil {
		return err
	}
	if pod != nil && pod.UID == s.pod.UID {
		r.listeners.Follow(key, pod)
	}
	return nil
}

// failureText is what a user reads of a failed import.
func failureText(result transfer.Result) string {
	return string(result.Reason) + ": " + result.Message
}
