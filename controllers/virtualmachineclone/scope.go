package virtualmachineclone

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachinerestore"
)

// scope is what one pass over a clone knows.
type scope struct {
	clone *clonev1.VirtualMachineClone
	now   time.Time
	// snapshot and restore are those that the clone works with, nil while there are none; set by read, takeSnapshot and startRestore.
	snapshot *snapshotv1.VirtualMachineSnapshot
	restore  *snapshotv1.VirtualMachineRestore
	// foreign is what others made under a name of the clone's own snapshot or restore; nil when nothing is.
	foreign client.Object
	// content is the snapshot's, once that is ready; set by awaitSnapshot.
	content *snapshotv1.VirtualMachineSnapshotContent
	// target is the VM of the target's name, nil while there is none. It need not be the clone's.
	target *virtv1.VirtualMachine
	// waits says what the snapshot or the restore waits for.
	waits string
	// done says that the new VM is there; cleared that nothing is left of what it was made with.
	done, cleared bool
	obstacle      *obstacle
	// gone says that the clone was deleted, so that nothing can be written to it.
	gone bool
}

// obstacle is what the user has to know: why the clone waits, or has failed.
type obstacle struct {
	reason, message string
	// final says that it will never succeed; poll that no event tells of the obstacle's end.
	final, poll bool
}

// Error is for the user.
func (o *obstacle) Error() string { return o.message }

func fail(reason, format string, args ...any) error {
	return &obstacle{reason: reason, message: fmt.Sprintf(format, args...), final: true}
}

func wait(reason, format string, args ...any) error {
	return &obstacle{reason: reason, message: fmt.Sprintf(format, args...)}
}

func poll(reason, format string, args ...any) error {
	return &obstacle{reason: reason, message: fmt.Sprintf(format, args...), poll: true}
}

// read reads what there is, past the caches; nil when the clone is gone.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{clone: &clonev1.VirtualMachineClone{}, now: r.now()}
	if found, err := r.get(ctx, key, s.clone); err != nil || !found {
		return nil, err
	}
	snapshot, restore, target := &snapshotv1.VirtualMachineSnapshot{}, &snapshotv1.VirtualMachineRestore{}, &virtv1.VirtualMachine{}
	objects := map[client.Object]string{target: targetName(s.clone)}
	if !settled(s.clone) { // else its VM's life is all that matters
		objects[snapshot], objects[restore] = snapshotName(s.clone), restoreName(s.clone.UID)
	}
	for into, name := range objects {
		if _, err := r.get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, into); err != nil {
			return nil, err
		}
	}
	switch {
	case snapshot.UID == "":
	case ofMachine(s.clone) && !metav1.IsControlledBy(snapshot, s.clone):
		s.foreign = snapshot
	default:
		s.snapshot = snapshot
	}
	switch {
	case restore.UID == "":
	case !metav1.IsControlledBy(restore, s.clone):
		s.foreign = restore
	default:
		s.restore = restore
	}
	if target.UID != "" {
		s.target = target
	}
	return s, nil
}

// get reads an object past the caches, and says whether there is one.
func (r *Reconciler) get(ctx context.Context, key client.ObjectKey, into client.Object) (bool, error) {
	err := r.live.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return true, nil
}

// ended says whether nothing is done any more to make clone's VM.
func ended(clone *clonev1.VirtualMachineClone) bool {
	return clone.Status.Phase == clonev1.Succeeded || clone.Status.Phase == clonev1.Failed
}

// settled says whether clone has ended and nothing is left of what it made its VM with.
func settled(clone *clonev1.VirtualMachineClone) bool {
	return ended(clone) && clone.Status.SnapshotName == nil && clone.Status.RestoreName == nil
}

// ofMachine says whether clone's source is a VM, of which it takes a snapshot itself.
func ofMachine(clone *clonev1.VirtualMachineClone) bool { return clone.Spec.Source.Kind == kindMachine }

// snapshotName is the name of the snapshot that clone works with.
func snapshotName(clone *clonev1.VirtualMachineClone) string {
	if ofMachine(clone) {
		return snapshotPrefix + string(clone.UID)
	}
	return clone.Spec.Source.Name
}

// targetName is the name of the VM that clone makes: the one asked for, or one that follows from the source's name and clone's uid.
func targetName(clone *clonev1.VirtualMachineClone) string {
	if clone.Spec.Target != nil && clone.Spec.Target.Name != "" {
		return clone.Spec.Target.Name
	}
	suffix, _, _ := strings.Cut(string(clone.UID), "-")
	if name := "clone-" + clone.Spec.Source.Name + "-" + suffix; len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	return "clone-object-" + suffix
}

// made says whether the target is this clone's: from its restore.
func (s *scope) made() bool {
	return s.target != nil && strings.HasPrefix(s.target.Annotations[virtualmachinerestore.AnnotationLast], restoreName(s.clone.UID)+"-")
}

// begun says whether something was made for the clone.
func (s *scope) begun() bool { return s.restore != nil || s.made() }

// next says when there is to be a pass that no event brings.
func (s *scope) next() ctrl.Result {
	if s.obstacle != nil && s.obstacle.poll {
		return ctrl.Result{RequeueAfter: retry}
	}
	return ctrl.Result{}
}

// complete says whether restore has done its work.
func complete(restore *snapshotv1.VirtualMachineRestore) bool {
	return restore.Status != nil && ptr.Deref(restore.Status.Complete, false)
}
