package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// update gives VMs the pool's template. Their guests run on with what they have.
func (r *Reconciler) update(ctx context.Context, s *scope) error {
	if len(s.plan.update) == 0 {
		return nil
	}
	err := checkTemplate(s.pool, s.selector)
	if err == nil {
		err = r.revise(ctx, s)
	}
	if err != nil {
		return s.fail(reasonUpdateFailed, err)
	}
	var errs []error
	for _, vm := range s.plan.update {
		changed, ok := s.updated(vm)
		if !ok {
			continue
		}
		if err := r.patch(ctx, changed, vm); client.IgnoreNotFound(err) != nil {
			r.warning(s.pool, reasonUpdateFailed, "Error updating virtual machine %s/%s: %v", vm.Namespace, vm.Name, err)
			errs = append(errs, err)
			continue
		}
		r.normal(s.pool, reasonUpdate, "Updated VM %s/%s", vm.Namespace, vm.Name)
	}
	if err := errors.Join(errs...); err != nil {
		return s.fail(reasonUpdateFailed, err)
	}
	return nil
}

// updated is vm with the pool's template; false when it has no name that the pool gives.
// Labels and annotations of others stay. When nothing changes for the guest, its template
// keeps the revision that it has, so that no restart is due.
func (s *scope) updated(vm *virtv1.VirtualMachine) (*virtv1.VirtualMachine, bool) {
	ordinal, ok := ordinalOf(s.pool, vm.Name)
	if !ok {
		return nil, false
	}
	wanted := machine(s.pool, ordinal, s.revision, s.plan.digest)
	changed := vm.DeepCopy()
	if changed.Labels == nil {
		changed.Labels = map[string]string{}
	}
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	maps.Copy(changed.Labels, wanted.Labels)
	maps.Copy(changed.Annotations, wanted.Annotations)
	changed.Spec = wanted.Spec
	if vm.Spec.Template == nil {
		return changed, true
	}
	same := wanted.Spec.Template.DeepCopy()
	same.ObjectMeta.Labels[virtv1.VirtualMachinePoolRevisionName] = vm.Spec.Template.ObjectMeta.Labels[virtv1.VirtualMachinePoolRevisionName]
	if equality.Semantic.DeepEqual(same, vm.Spec.Template) {
		changed.Spec.Template = same
	}
	return changed, true
}

// replace deletes VMs whose disks the pool's template fills otherwise. The next pass makes
// them anew when they are gone. Their disks are of no use to the new ones, so that they are not held.
func (r *Reconciler) replace(ctx context.Context, s *scope) error {
	var errs []error
	for _, vm := range s.plan.replace {
		if err := r.loosen(ctx, vm); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, r.delete(ctx, s, vm))
	}
	if err := errors.Join(errs...); err != nil {
		return s.fail(reasonUpdateFailed, err)
	}
	return nil
}

// restart asks for a restart of guests that run an older template, as virtctl restart does:
// so they start again under every run strategy.
func (r *Reconciler) restart(ctx context.Context, s *scope) error {
	var errs []error
	for _, vm := range s.plan.restart {
		if err := r.askRestart(ctx, s, vm); client.IgnoreNotFound(err) != nil {
			r.warning(s.pool, reasonUpdateFailed, "Error updating virtual machine %s/%s: %v", vm.Namespace, vm.Name, err)
			errs = append(errs, err)
			continue
		}
		r.normal(s.pool, reasonUpdate, "Restarting VM %s/%s with the pool's template", vm.Namespace, vm.Name)
	}
	if err := errors.Join(errs...); err != nil {
		return s.fail(reasonUpdateFailed, err)
	}
	return nil
}

func (r *Reconciler) askRestart(ctx context.Context, s *scope, vm *virtv1.VirtualMachine) error {
	changed := vm.DeepCopy()
	for i := range s.instances {
		if s.instances[i].Name == vm.Name {
			changed.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{
				{Action: virtv1.StopRequest, UID: &s.instances[i].UID}, {Action: virtv1.StartRequest},
			}
		}
	}
	patch := client.MergeFromWithOptions(vm, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("asking for a restart of VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	return nil
}
