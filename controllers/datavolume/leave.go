package datavolume

import (
	"context"
	"errors"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/steps"
)

// withLeave returns what the DataVolume clones: from, where its creator may. Where its DataSource has moved on since he was
// asked, that is what it named then, as long as that is there or the clone of it on its way: DataSources of images move on
// at any time.
func (r *Reconciler) withLeave(ctx context.Context, s *scope, from *clonesource.Source) (*clonesource.Source, error) {
	leave := clonesource.FromMark(s.dv.Annotations[clonesource.AnnotationAuthorized])
	if from.Key().Namespace == s.dv.Namespace || leave != nil && leave.Mark() == from.Mark() {
		return from, nil
	}
	if leave != nil {
		leave.Labels = from.Labels
		there, err := r.isThere(ctx, leave)
		if err != nil || there {
			return leave, err
		}
		if arriving, err := r.arriving(ctx, s, leave); err != nil || arriving != nil {
			return leave, err
		}
	}
	s.failed = &obstacle{reasonUnauthorized, fmt.Sprintf("Whoever created the DataVolume was not asked whether %s of another namespace may be cloned; delete the DataVolume and create it again", from)}
	return nil, steps.ErrDone
}

// named is what the DataVolume clones by its spec. Where a DataSource names nothing any more, it is what that named when the
// DataVolume's creator was asked, if the clone of that is on its way from another namespace.
func (r *Reconciler) named(ctx context.Context, s *scope) (*clonesource.Source, error) {
	from, err := clonesource.Of(ctx, r.Client, s.dv.Namespace, &s.dv.Spec)
	missing, is := errors.AsType[*clonesource.Obstacle](err)
	leave := clonesource.FromMark(s.dv.Annotations[clonesource.AnnotationAuthorized])
	if !is || missing.Final || leave == nil || leave.Key().Namespace == s.dv.Namespace {
		return from, err
	}
	switch arriving, failure := r.arriving(ctx, s, leave); {
	case failure != nil:
		return nil, failure
	case arriving == nil:
		return nil, err
	}
	return leave, nil
}

// isThere says whether a claim or snapshot exists and stays.
func (r *Reconciler) isThere(ctx context.Context, source *clonesource.Source) (bool, error) {
	var object client.Object = &corev1.PersistentVolumeClaim{}
	if source.InSnapshot() {
		object = &snapshotv1.VolumeSnapshot{}
	}
	found, err := get(ctx, r.live, source.Key(), object)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return found != nil && found.GetDeletionTimestamp() == nil, err
}

// readSource reads what is cloned, and waits until it is filled. Where it is gone it is known from its clone, when that is on
// its way from another namespace.
func (r *Reconciler) readSource(ctx context.Context, s *scope, from *clonesource.Source) (*origin, map[string]string, error) {
	read := r.claimSource
	if from.InSnapshot() {
		read = r.snapshotSource
	}
	source, labels, err := read(ctx, s, from)
	if !errors.Is(err, steps.ErrDone) || s.waiting == nil || s.waiting.reason != reasonSourceMissing || from.Key().Namespace == s.dv.Namespace {
		return source, labels, err
	}
	arriving, err := r.arriving(ctx, s, from)
	if err != nil {
		return nil, nil, err
	}
	if arriving == nil {
		return nil, nil, steps.ErrDone
	}
	s.waiting, s.result.RequeueAfter = nil, 0
	return arriving, map[string]string{}, nil
}

// arriving is what a clone of source that is on its way was made from, as far as the clone tells; nil when there is none, or it
// will never be whole.
func (r *Reconciler) arriving(ctx context.Context, s *scope, source *clonesource.Source) (*origin, error) {
	w, err := r.onTheWay(ctx, s, &origin{Source: *source})
	if err != nil || w.manner() == notBegun {
		return nil, err
	}
	var o *origin
	if w.volume != nil {
		o = originOfVolume(w.volume)
	} else {
		if on, err := r.goesOn(ctx, w.there); err != nil || !on {
			return nil, err
		}
		o = originOf(w.there)
		o.bound = o.bound || isCopy(w.there) // by the pod that copies
	}
	o.Source, o.fits = *source, true
	if asked := diskSize(s.dv); asked > 0 && asked < o.size.Value() {
		o.size = *resource.NewQuantity(asked, resource.BinarySI) // it was enough
	}
	return o, nil
}

// goesOn reports whether a clone in the source's namespace is whole, or can be, whatever has become of the source: a copy ends
// well or badly once its pod is at work, and can begin while that is there which it copies.
func (r *Reconciler) goesOn(ctx context.Context, there *corev1.PersistentVolumeClaim) (bool, error) {
	if !isCopy(there) {
		return r.isMade(ctx, there)
	}
	if there.Annotations[AnnotationPodPhase] != "" {
		return true, nil // it has ended
	}
	pod, err := get(ctx, r.live, types.NamespacedName{Namespace: there.Namespace, Name: PodName(there.Name)}, &corev1.Pod{})
	if err != nil || atWork(pod) {
		return err == nil, err
	}
	from := clonesource.FromMark(there.Annotations[AnnotationCopiedFrom])
	if from == nil || from.InSnapshot() {
		return false, nil
	}
	claim, err := get(ctx, r.live, from.Claim, &corev1.PersistentVolumeClaim{})
	if err != nil || claim == nil || claim.DeletionTimestamp != nil {
		return false, err
	}
	return r.isMade(ctx, claim)
}

// atWork reports whether a pod that copies has, or had to its end, what it copies: that is kept once it has a node.
func atWork(pod *corev1.Pod) bool {
	if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return pod.Spec.NodeName != "" || pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodSucceeded
}

// isMade reports whether claim has its volume, or that is there from which it is to be made.
func (r *Reconciler) isMade(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if claim.Status.Phase == corev1.ClaimBound {
		return true, nil
	}
	from := madeFrom(claim)
	if from == nil {
		return false, nil
	}
	return r.isThere(ctx, from)
}

// originOfVolume is a clone's volume as what its claim is made from.
func originOfVolume(volume *corev1.PersistentVolume) *origin {
	mode := ptr.Deref(volume.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	return &origin{mode: mode, access: volume.Spec.AccessModes, class: &volume.Spec.StorageClassName, size: *volume.Spec.Capacity.Storage()}
}
