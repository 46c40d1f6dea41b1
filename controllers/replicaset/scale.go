package replicaset

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
)

// burst is how many instances a pass makes or deletes at the most. The next pass, which
// their own events bring, goes on, and the status is written in between.
const burst = 250

// create makes the instances that are missing. The first that is refused ends the pass: what
// refuses one, such as a quota, refuses them all. Those that ended are removed all the same,
// for they may be what fills the quota.
func (r *Reconciler) create(ctx context.Context, s *scope) error {
	for range min(s.plan.create, burst) {
		vmi, err := instance(s.set, s.selector)
		if err == nil {
			err = r.Create(ctx, vmi, client.FieldOwner(names.ManagerController))
		}
		if namespace.Ending(err) {
			return nil // the set is deleted next
		}
		if err != nil {
			r.warning(s.set, reasonCreateFailed, "Error creating virtual machine instance: %v", err)
			removed := r.removeFinished(ctx, s)
			refused := fmt.Errorf("creating a VirtualMachineInstance of %s/%s: %w", s.set.Namespace, s.set.Name, err)
			return errors.Join(s.fail(reasonCreateFailed, refused), removed)
		}
		s.active = append(s.active, vmi)
		r.normal(s.set, reasonCreate, "Started the virtual machine by creating the new virtual machine instance %s", vmi.Name)
	}
	return nil
}

// remove deletes the instances that are too much.
func (r *Reconciler) remove(ctx context.Context, s *scope) error {
	return r.deleteAll(ctx, s, s.plan.remove, "Stopped the virtual machine by deleting the virtual machine instance %s")
}

// removeFinished deletes the instances that ended, whose places are taken.
func (r *Reconciler) removeFinished(ctx context.Context, s *scope) error {
	return r.deleteAll(ctx, s, s.plan.finished, "Deleted finished virtual machine: %s")
}

// deleteAll deletes instances; one that cannot be deleted does not keep the others.
func (r *Reconciler) deleteAll(ctx context.Context, s *scope, instances []*virtv1.VirtualMachineInstance, done string) error {
	var errs []error
	for _, vmi := range instances[:min(len(instances), burst)] {
		err := r.Delete(ctx, vmi, client.Preconditions{UID: &vmi.UID})
		if client.IgnoreNotFound(err) != nil {
			r.warning(s.set, reasonDeleteFailed, "Error deleting virtual machine instance %s: %v", vmi.Name, err)
			errs = append(errs, fmt.Errorf("deleting VirtualMachineInstance %s/%s: %w", vmi.Namespace, vmi.Name, err))
			continue
		}
		s.forget(vmi)
		if !apierrors.IsNotFound(err) {
			r.normal(s.set, reasonDelete, done, vmi.UID)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return s.fail(reasonDeleteFailed, err)
	}
	return nil
}
