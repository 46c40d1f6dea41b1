package objecttransfer

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/handover"
	"github.com/slipway-vm/slipway/internal/names"
)

// makeDataVolume makes the DataVolume that takes the claim over, once that has its disk: it has nothing to fill.
func (r *Reconciler) makeDataVolume(ctx context.Context, s *scope) error {
	if !s.ofDataVolume() {
		return nil
	}
	var err error
	if s.next, err = get(ctx, r.live, s.goal, &cdiv1.DataVolume{}); err != nil || s.next != nil {
		return err
	}
	dv := newDataVolume(s.rec, s.goal, s.ot.Name)
	if err := r.Create(ctx, dv, client.FieldOwner(names.ManagerData)); refused(err) {
		return poll(sayRefused, "PersistentVolumeClaim %s has the disk; its DataVolume cannot be made: %v", s.goal, err)
	} else if err != nil {
		return fmt.Errorf("creating DataVolume %s: %w", s.goal, err)
	}
	s.next = dv
	return nil
}

// awaitDataVolume waits until the DataVolume has taken the claim over.
func (r *Reconciler) awaitDataVolume(_ context.Context, s *scope) error {
	switch {
	case !s.ofDataVolume(), s.next.Status.Phase == cdiv1.Succeeded && metav1.IsControlledBy(s.made, s.next):
		return nil
	case s.next.Status.Phase == cdiv1.Failed:
		return poll(sayFilling, "DataVolume %s has failed; its conditions say why. Delete it, and it is made again", s.goal)
	}
	return wait(sayFilling, "DataVolume %s takes its claim over", s.goal)
}

// settle gives what was moved free: the mark that lets the claim be taken over, the DataVolume's, and the volume's, with
// which that gets its reclaim policy back.
func (r *Reconciler) settle(ctx context.Context, s *scope) error {
	if s.ofDataVolume() {
		had, is := s.rec.claim.Annotations[datavolume.AnnotationAdopt]
		if s.made.Annotations[datavolume.AnnotationAdopt] != had {
			err := r.note(ctx, s.made, func(notes map[string]string) {
				if delete(notes, datavolume.AnnotationAdopt); is {
					notes[datavolume.AnnotationAdopt] = had
				}
			})
			if err != nil {
				return err
			}
		}
		if err := r.mark(ctx, s.next, ""); err != nil {
			return err
		}
	}
	if !s.marked() {
		return nil
	}
	return handover.Settle(ctx, r.Client, s.volume, s.way())
}

// finish ends the transfer.
func (r *Reconciler) finish(ctx context.Context, s *scope) error {
	s.done = true
	if s.ot.DeletionTimestamp != nil {
		return r.release(ctx, s)
	}
	return nil
}

// leaveVolume takes the marks off the volume of a transfer that has failed. It stays kept: whoever has it now, or takes it
// from here, decides about it.
func (r *Reconciler) leaveVolume(ctx context.Context, s *scope) error {
	if s.volume == nil || !s.marked() {
		return nil
	}
	return handover.Leave(ctx, r.Client, s.volume, s.way())
}
