package datavolume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
	"github.com/slipway-vm/slipway/internal/steps"
)

// errStale ends a pass that has read from the cache what is not so any more. Nothing that
// it found is written; another pass follows soon.
var errStale = errors.New("the cache lags behind")

// staleRetry is how long the cache is given to catch up, takenRetry how long another's
// object, of which no event may come, is left in peace.
const (
	staleRetry = time.Second
	takenRetry = 10 * time.Second
)

// create creates what the DataVolume owns, its claim or its pod. The DataVolume waits while a quota does not allow it.
func (r *Reconciler) create(ctx context.Context, s *scope, object client.Object) error {
	err := r.tryCreate(ctx, s, object)
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota") {
		s.waiting, s.result.RequeueAfter = &obstacle{reasonExceededQuota, err.Error()}, takenRetry
		return steps.ErrDone
	}
	return err
}

// tryCreate creates what holds data, or writes it, so it trusts no cache: it makes nothing for a DataVolume that is gone,
// and never changes an object that is there already.
func (r *Reconciler) tryCreate(ctx context.Context, s *scope, object client.Object) error {
	dv, err := get(ctx, r.live, client.ObjectKeyFromObject(s.dv), &cdiv1.DataVolume{})
	if err != nil {
		return err
	}
	if dv == nil || dv.UID != s.dv.UID || dv.DeletionTimestamp != nil {
		return errStale
	}
	err = r.Create(ctx, object, client.FieldOwner(names.ManagerData))
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.explainExisting(ctx, s, object)
	case namespace.Ending(err):
		return steps.ErrDone // the DataVolume goes too
	case err != nil:
		return fmt.Errorf("creating %T %s of DataVolume %s: %w", object, object.GetName(), s.dv.Name, err)
	}
	return nil
}

// explainExisting ends the pass on an object that the cache does not show. A claim that is
// another's is judged by the next pass, which sees it.
func (r *Reconciler) explainExisting(ctx context.Context, s *scope, object client.Object) error {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return errStale
	}
	there, err := get(ctx, r.live, client.ObjectKeyFromObject(pod), &corev1.Pod{})
	if err != nil {
		return err
	}
	if there == nil || metav1.IsControlledBy(there, s.dv) {
		return errStale
	}
	s.waiting = &obstacle{reasonExists, fmt.Sprintf("Pod %q already exists and is not managed by DataVolume; the disk is filled once it is gone", pod.Name)}
	s.result.RequeueAfter = takenRetry
	return steps.ErrDone
}

// checkUnfilled makes sure that the claim is still to be filled, and that no image is written below who uses it: an
// importer that starts on a disk that is in use destroys it.
func (r *Reconciler) checkUnfilled(ctx context.Context, s *scope) error {
	claim, err := get(ctx, r.live, client.ObjectKeyFromObject(s.claim), &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	if claim == nil || claim.UID != s.claim.UID || claim.DeletionTimestamp != nil || claim.Annotations[AnnotationPodPhase] != s.claim.Annotations[AnnotationPodPhase] {
		log.FromContext(ctx).V(1).Info("Making no importer pod, the cache shows an older claim", "claim", s.claim.Name)
		return errStale
	}
	return r.checkUnused(ctx, s)
}
