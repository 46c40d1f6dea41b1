package virtualmachine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
)

// run starts or stops the VM as its run strategy and the requests in its status say. One
// that ended by itself is started again when the strategy has it so, after its back-off
// when it failed.
func (r *Reconciler) run(ctx context.Context, s *scope) error {
	switch {
	case s.strategyError != nil:
		return s.strategyError
	case s.vmi == nil && s.vm.Status.RestoreInProgress != nil:
		return nil // its disks are being exchanged; the end of that brings another pass
	case s.vmi == nil && s.wanted() && s.strategy.halts:
		return r.letRun(ctx, s)
	case s.vmi == nil && s.migration != nil:
		return nil // its disks are being copied; the end of that brings another pass
	case s.vmi == nil && s.wanted():
		return r.start(ctx, s)
	case s.vmi != nil && s.vmi.DeletionTimestamp == nil && s.mustGo():
		return r.stop(ctx, s)
	}
	return nil
}

func (r *Reconciler) start(ctx context.Context, s *scope) error {
	if failure := s.startFailure; failure != nil && failure.RetryAfterTimestamp != nil {
		if left := failure.RetryAfterTimestamp.Sub(s.now); left > 0 {
			s.requeueAfter(left)
			return nil
		}
	}
	vmi, err := r.newInstance(ctx, s)
	if namespace.Ending(err) {
		return nil // the VM is deleted next
	}
	if err != nil {
		r.warnOnce(s.vm, reasonCreateFailed, "Error creating virtual machine instance: %v", err)
		return fmt.Errorf("starting VirtualMachine %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
	}
	err = r.Create(ctx, vmi, client.FieldOwner(names.ManagerController))
	if apierrors.IsAlreadyExists(err) {
		return r.checkOwner(ctx, s)
	}
	if namespace.Ending(err) {
		return nil // the VM is deleted next
	}
	if err != nil {
		r.warnOnce(s.vm, reasonCreateFailed, "Error creating virtual machine instance: %v", err)
		return fmt.Errorf("creating VirtualMachineInstance %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	s.vmi = vmi
	r.normal(s.vm, reasonCreate, "Started the virtual machine by creating the new virtual machine instance %s", vmi.Name)
	return nil
}

// checkOwner explains a VMI of the VM's name that the cache did not show as its own.
func (r *Reconciler) checkOwner(ctx context.Context, s *scope) error {
	vmi := &virtv1.VirtualMachineInstance{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(s.vm), vmi); err != nil {
		return fmt.Errorf("reading VirtualMachineInstance %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
	}
	for _, owner := range vmi.OwnerReferences {
		if owner.UID == s.vm.UID {
			return nil
		}
	}
	if isOrphan(vmi) {
		s.requeueAfter(time.Second) // the next pass sees it
		return nil
	}
	return fmt.Errorf("VirtualMachineInstance %s/%s exists and is not this VirtualMachine's; delete it, or rename one of them", vmi.Namespace, vmi.Name)
}

// newInstance makes the VMI, with what the VM's instance type and preference say, or said when the VM first started with them.
func (r *Reconciler) newInstance(ctx context.Context, s *scope) (*virtv1.VirtualMachineInstance, error) {
	p, err := r.parts(ctx, s.vm)
	if err != nil {
		return nil, err
	}
	if request := s.startRequest(); request != nil {
		p.paused = startsPaused(*request)
	}
	s.instancetype, s.preference = p.instancetypeRef, p.preferenceRef
	vmi, err := instance(p)
	if err != nil {
		return nil, err
	}
	if err := r.keepParts(ctx, s, p); err != nil {
		return nil, err
	}
	config, err := r.readSettings(ctx)
	if err != nil {
		return nil, err
	}
	defaults.CPU(&vmi.Spec.Domain, config.cluster)
	setMaxSockets(&vmi.Spec, config)
	setMaxGuest(&vmi.Spec, config)
	vmi.Status.VirtualMachineRevisionName, err = r.recordRevision(ctx, s)
	return vmi, err
}

// parts reads what vm's instance is made from.
func (r *Reconciler) parts(ctx context.Context, vm *virtv1.VirtualMachine) (parts, error) {
	it, preference, err := r.resolver.References(ctx, vm)
	if err != nil {
		return parts{}, err
	}
	p := parts{vm: vm, instancetypeRef: it, preferenceRef: preference}
	if p.instancetype, p.instancetypeObject, err = r.resolver.Instancetype(ctx, vm.Namespace, it); err != nil {
		return parts{}, err
	}
	if p.preference, p.preferenceObject, err = r.resolver.Preference(ctx, vm.Namespace, preference); err != nil {
		return parts{}, err
	}
	return p, nil
}

func (r *Reconciler) stop(ctx context.Context, s *scope) error {
	err := r.Delete(ctx, s.vmi, client.Preconditions{UID: &s.vmi.UID})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.warning(s.vm, reasonDeleteFailed, "Error deleting virtual machine instance %s: %v", s.vmi.Name, err)
		return fmt.Errorf("deleting VirtualMachineInstance %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	r.normal(s.vm, reasonDelete, "Stopped the virtual machine by deleting the virtual machine instance %s", s.vmi.UID)
	return nil
}
