package rename

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/rename"
)

// waiter follows a rename that was taken.
type waiter struct {
	client    client.WithWatch
	namespace string
	names     names
	out       io.Writer
	// uid and version are those of the old VM after it was taken.
	uid     types.UID
	version string
	// failure says why the VM is not being renamed any more; said is what was printed last.
	failure, said string
}

// wait follows the old VM to its end, and the new one until it is on its own.
func (w *waiter) wait(ctx context.Context, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err := w.follow(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("it is not done after %s; the cluster goes on with it, \"kubectl describe vm %s\" says how it stands: %w", bound, w.names.old, ctx.Err())
	}
	return err
}

func (w *waiter) follow(ctx context.Context) error {
	vm := &virtv1.VirtualMachine{}
	err := w.client.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: w.names.old}, vm)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	if !apierrors.IsNotFound(err) {
		w.uid, w.version = vm.UID, vm.ResourceVersion
		if err := w.until(ctx, w.names.old, w.gone); err != nil {
			return err
		}
	}
	if w.failure != "" {
		return errors.New(w.failure)
	}
	return w.until(ctx, w.names.next, w.arrived)
}

func (w *waiter) until(ctx context.Context, name string, check await.Check[*virtv1.VirtualMachine]) error {
	return await.Object(ctx, w.client, &virtv1.VirtualMachineList{}, client.ObjectKey{Namespace: w.namespace, Name: name}, check)
}

// gone says whether the old VM is gone, or is not to be renamed any more.
func (w *waiter) gone(vm *virtv1.VirtualMachine, exists bool) (bool, error) {
	if !exists || vm.UID != w.uid {
		return true, nil
	}
	if order, err := resourceversion.CompareResourceVersion(vm.ResourceVersion, w.version); err != nil {
		return false, fmt.Errorf("reading its version: %w", err)
	} else if order < 0 {
		return false, nil // from before it was asked for
	}
	if rename.Target(vm) == w.names.next {
		w.progress(vm)
		return false, nil
	}
	w.failure = "it was taken back"
	if target, why := rename.Failure(vm); target == w.names.next {
		w.failure = why
	}
	return true, nil
}

// arrived says whether the new VM has the old one's place.
func (w *waiter) arrived(vm *virtv1.VirtualMachine, exists bool) (bool, error) {
	if !exists {
		return false, nil
	}
	_, arriving := rename.OriginOf(vm)
	if arriving {
		w.progress(vm)
	}
	return !arriving, nil
}

// progress prints what a VM's rename waits for, when that has changed.
func (w *waiter) progress(vm *virtv1.VirtualMachine) {
	for _, c := range vm.Status.Conditions {
		if line := fmt.Sprintf("VM %s: %s", vm.Name, c.Message); c.Type == rename.Condition && line != w.said {
			w.said = line
			fmt.Fprintln(w.out, line)
		}
	}
}
