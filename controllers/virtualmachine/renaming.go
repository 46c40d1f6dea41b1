package virtualmachine

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
	"github.com/slipway-vm/slipway/internal/rename"
	"github.com/slipway-vm/slipway/internal/steps"
)

// A rename is a VM of the new name that takes the place of the old one. Each of the two
// says in an annotation what becomes of it, so that whatever is broken off is carried on: every step
// finds what it has done before. All of them but the last are passes over the old VM. Until its
// deletion the rename can be taken back, by deleting the new one; the disks are both VMs' meanwhile.

// renameSteps are those of a VM that is being renamed. The new VM comes before anything is taken
// from the old one, and has all of it before that goes.
func (r *Reconciler) renameSteps() []func(context.Context, *scope) error {
	return []func(context.Context, *scope) error{
		r.findRenamed,
		r.checkRename,
		r.createRenamed,
		r.carryStatus,
		r.handOverDependents,
		r.deleteRenamed,
	}
}

// endSteps are those of a VM that is being deleted. One that is being renamed leaves its disks to
// the VM that takes its place, whoever deletes it.
func (r *Reconciler) endSteps(vm *virtv1.VirtualMachine) []func(context.Context, *scope) error {
	if rename.Target(vm) != "" {
		return []func(context.Context, *scope) error{r.findRenamed, r.carryStatus, r.handOverDependents, r.finalize}
	}
	return []func(context.Context, *scope) error{r.awaitReturn, r.keepVolumes, r.recordDeleted, r.finalize}
}

// findRenamed reads, past the cache, the VM and the one that takes its place.
func (r *Reconciler) findRenamed(ctx context.Context, s *scope) error {
	vm := &virtv1.VirtualMachine{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(s.vm), vm); err != nil {
		if s.gone = apierrors.IsNotFound(err); s.gone {
			return steps.ErrDone
		}
		return renameError(s, "reading it", err)
	}
	target := rename.Target(vm)
	if vm.UID != s.vm.UID || target == "" {
		return steps.ErrDone // it has been renamed, or is not to be any more
	}
	s.vm = vm
	if why := RefuseTarget(target, nil, nil); why != "" {
		return r.giveUp(ctx, s, why) // nothing can be read by it
	}
	next := &virtv1.VirtualMachine{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: target}, next)
	switch origin, _ := rename.OriginOf(next); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return renameError(s, "reading VirtualMachine "+target, err)
	case origin.UID != vm.UID:
		return r.giveUp(ctx, s, fmt.Sprintf("VirtualMachine %s exists", target))
	case next.DeletionTimestamp != nil:
		return r.takeBack(ctx, s, next)
	}
	s.renamed = next
	return nil
}

// checkRename asks once more what virt-api asked before it took the rename, for what came since.
func (r *Reconciler) checkRename(ctx context.Context, s *scope) error {
	if s.renamed != nil {
		return nil
	}
	for _, name := range []string{s.vm.Name, rename.Target(s.vm)} {
		vmi := &virtv1.VirtualMachineInstance{}
		err := r.live.Get(ctx, client.ObjectKey{Namespace: s.vm.Namespace, Name: name}, vmi)
		if client.IgnoreNotFound(err) != nil {
			return renameError(s, "reading VirtualMachineInstance "+name, err)
		}
		if err != nil {
			vmi = nil
		}
		why := RefuseTarget(rename.Target(s.vm), nil, vmi)
		if name == s.vm.Name {
			why = RefuseRename(s.vm, vmi)
		}
		if why != "" {
			return r.giveUp(ctx, s, why)
		}
	}
	claims := &corev1.PersistentVolumeClaimList{}
	labels := client.MatchingLabels(stateLabels(rename.Target(s.vm)))
	if err := r.live.List(ctx, claims, client.InNamespace(s.vm.Namespace), labels); err != nil {
		return renameError(s, "looking for states", err)
	}
	for i := range claims.Items {
		if claim := &claims.Items[i]; metav1.GetControllerOf(claim) == nil {
			return r.giveUp(ctx, s, fmt.Sprintf("PersistentVolumeClaim %s, which is nobody's, has the state of a VM of that name; delete it, or take the label %s off it",
				claim.Name, names.LabelState))
		}
	}
	return nil
}

// createRenamed makes the VM of the new name. What the API server will not take ends the rename.
func (r *Reconciler) createRenamed(ctx context.Context, s *scope) error {
	if s.renamed != nil {
		return nil
	}
	vm := renamed(s.vm, rename.Target(s.vm))
	err := r.Create(ctx, vm, client.FieldOwner(names.ManagerController))
	switch {
	case namespace.Ending(err):
		return steps.ErrDone // the VM is deleted next
	case apierrors.IsAlreadyExists(err), apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return r.giveUp(ctx, s, err.Error())
	case err != nil:
		return renameError(s, "creating VirtualMachine "+vm.Name, err)
	}
	s.renamed = vm
	return nil
}

// carryStatus gives the new VM what only a status knows: that the VM has run, and of which size it is.
func (r *Reconciler) carryStatus(ctx context.Context, s *scope) error {
	if s.renamed == nil || s.renamed.Status.PrintableStatus != "" {
		return nil
	}
	kept := virtv1.VirtualMachineStatus{
		PrintableStatus: virtv1.VirtualMachineStatusStopped,
		RunStrategy:     s.vm.Status.RunStrategy,
		InstancetypeRef: s.vm.Status.InstancetypeRef,
		PreferenceRef:   s.vm.Status.PreferenceRef,
		Conditions: []virtv1.VirtualMachineCondition{{
			Type: rename.Condition, Status: corev1.ConditionTrue, Reason: string(rename.Condition), LastTransitionTime: metav1.NewTime(s.now),
			Message: fmt.Sprintf("it takes the place of VirtualMachine %s, and can start when that is gone", s.vm.Name),
		}},
	}
	return renameError(s, "writing the status of "+s.renamed.Name, apply.Status(ctx, r.Client, s.renamed, names.ManagerController, kept))
}

// handOverDependents gives the new VM what is the old one's.
func (r *Reconciler) handOverDependents(ctx context.Context, s *scope) error {
	if s.renamed == nil {
		return nil
	}
	return renameError(s, "handing over what it has", handover{from: s.vm, to: s.renamed, keep: true}.do(ctx, r))
}

// deleteRenamed deletes the old VM. What Slipway does not know of, and is the VM's, stays without an owner.
func (r *Reconciler) deleteRenamed(ctx context.Context, s *scope) error {
	err := r.Delete(ctx, s.vm, client.Preconditions{UID: &s.vm.UID}, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	return renameError(s, "deleting it", client.IgnoreNotFound(err))
}

// takeBack ends the rename of a VM because the one that was to take its place is being deleted.
func (r *Reconciler) takeBack(ctx context.Context, s *scope, next *virtv1.VirtualMachine) error {
	if err := (handover{from: next, to: s.vm}).do(ctx, r); err != nil {
		return renameError(s, "taking it back", err)
	}
	return r.giveUp(ctx, s, fmt.Sprintf("VirtualMachine %s was deleted before it was done", next.Name))
}

// giveUp ends the rename, and says why.
func (r *Reconciler) giveUp(ctx context.Context, s *scope, why string) error {
	changed := s.vm.DeepCopy()
	target := rename.Target(s.vm)
	rename.Failed(changed.Annotations, target, why)
	if err := r.patch(ctx, changed, s.vm); err != nil {
		return renameError(s, "giving up", err)
	}
	s.vm = changed
	r.warning(s.vm, rename.ReasonFailed, "Error renaming the virtual machine to %s: %s", target, why)
	return steps.ErrDone
}

// arrive lets the new VM be one like any other when the old one is gone.
func (r *Reconciler) arrive(ctx context.Context, s *scope) error {
	origin, _ := rename.OriginOf(s.vm)
	old, err := r.origin(ctx, s)
	switch {
	case err != nil:
		return err
	case old != nil && old.DeletionTimestamp == nil && rename.Target(old) != s.vm.Name:
		return fmt.Errorf("VirtualMachine %s is not being renamed any more; delete this one, or take the annotation %s off it", origin.Name, rename.AnnotationOrigin)
	case old != nil:
		return nil // its end brings another pass
	}
	changed := s.vm.DeepCopy()
	delete(changed.Annotations, rename.AnnotationOrigin)
	if err := r.patch(ctx, changed, s.vm); err != nil {
		return renameError(s, "ending it", err)
	}
	r.normal(s.vm, reasonRenamed, "Renamed the virtual machine from %s", origin.Name)
	return nil
}

// awaitReturn holds a new VM that is being deleted until the old one has its disks back.
func (r *Reconciler) awaitReturn(ctx context.Context, s *scope) error {
	if _, arriving := rename.OriginOf(s.vm); !arriving {
		return nil
	}
	old, err := r.origin(ctx, s)
	if err != nil {
		return err
	}
	if old != nil && old.DeletionTimestamp == nil && rename.Target(old) == s.vm.Name {
		return steps.ErrDone // the change of its annotation brings another pass
	}
	return nil
}

// origin reads, past the cache, the VM whose place s.vm takes; nil when it is gone.
func (r *Reconciler) origin(ctx context.Context, s *scope) (*virtv1.VirtualMachine, error) {
	origin, _ := rename.OriginOf(s.vm)
	old := &virtv1.VirtualMachine{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: s.vm.Namespace, Name: origin.Name}, old)
	if apierrors.IsNotFound(err) || err == nil && old.UID != origin.UID {
		return nil, nil
	}
	return old, renameError(s, "reading VirtualMachine "+origin.Name, err)
}

// renameCondition says how the VM's rename stands; nil when there is none.
func renameCondition(s *scope) *virtv1.VirtualMachineCondition {
	target, why := rename.Failure(s.vm)
	switch next := rename.Target(s.vm); {
	case next != "":
		message := "it is being renamed to " + next
		if foreign := foreignFinalizers(s.vm); s.vm.DeletionTimestamp != nil && len(foreign) > 0 {
			message += ": waiting until others have taken off its finalizers " + strings.Join(foreign, ", ")
		}
		return &virtv1.VirtualMachineCondition{Type: rename.Condition, Status: corev1.ConditionTrue, Reason: string(rename.Condition), Message: message}
	case target != "":
		return &virtv1.VirtualMachineCondition{
			Type: rename.Condition, Status: corev1.ConditionFalse, Reason: rename.ReasonFailed, Message: fmt.Sprintf("it was not renamed to %s: %s", target, why),
		}
	}
	return nil
}

func foreignFinalizers(vm *virtv1.VirtualMachine) []string {
	var foreign []string
	for _, finalizer := range vm.Finalizers {
		if finalizer != virtv1.VirtualMachineControllerFinalizer {
			foreign = append(foreign, finalizer)
		}
	}
	return foreign
}

func renameError(s *scope, doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("renaming VirtualMachine %s/%s: %s: %w", s.vm.Namespace, s.vm.Name, doing, err)
}
