package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/steps"
)

// scope is what one pass over a pool knows and decides.
type scope struct {
	pool *poolv1.VirtualMachinePool
	now  time.Time
	// selector says which VMs are the pool's.
	selector labels.Selector
	// seen are the VMs of the pool's namespace as the cache has them, and instances their
	// instances, which lookAgain reads anew where they matter; none of them is written to.
	seen      []virtv1.VirtualMachine
	instances []virtv1.VirtualMachineInstance
	// plan is what there is to do: by the cache at first, by the API server after lookAgain.
	plan plan
	// members are the pool's VMs; the steps add what they make.
	members []*virtv1.VirtualMachine
	// revision is the name of the template's revision; revise sets it.
	revision string
	// failure says why the pool is not as it is to be, and reason in a word; fail sets them.
	failure error
	reason  string
	// gone says that the pool was deleted since it was read, so nothing can be written to it.
	gone bool
}

func (r *Reconciler) newScope(ctx context.Context, pool *poolv1.VirtualMachinePool) (*scope, error) {
	selector, err := selectorOf(pool)
	if err != nil {
		return nil, err
	}
	machines := &virtv1.VirtualMachineList{}
	if err := r.List(ctx, machines, client.InNamespace(pool.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the VirtualMachines of %s: %w", pool.Namespace, err)
	}
	instances := &virtv1.VirtualMachineInstanceList{}
	if err := r.List(ctx, instances, client.InNamespace(pool.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the VirtualMachineInstances of %s: %w", pool.Namespace, err)
	}
	s := &scope{now: r.now(), seen: machines.Items, instances: instances.Items}
	return s, s.decide(pool, selector, s.seen)
}

// selectorOf reads pool's selector. Only another spec mends one that says nothing, and that
// brings another pass.
func selectorOf(pool *poolv1.VirtualMachinePool) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.Selector)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("reading the selector of VirtualMachinePool %s/%s: %w", pool.Namespace, pool.Name, err)) //nolint:wrapcheck // it is wrapped within
	}
	return selector, nil
}

// decide plans the pass for pool, with the VMs that there are.
func (s *scope) decide(pool *poolv1.VirtualMachinePool, selector labels.Selector, machines []virtv1.VirtualMachine) error {
	s.pool, s.selector = pool, selector
	planned, err := planFor(pool, selector, machines, s.instances, s.now)
	if err != nil {
		return err
	}
	s.plan = planned
	s.members = slices.Clone(planned.members)
	return nil
}

// lookAgain ends a pass in which there is nothing to do. Else it reads pool and VMs past
// the cache, and plans by that: what the last pass has made is neither made nor deleted
// again.
func (r *Reconciler) lookAgain(ctx context.Context, s *scope) error {
	if s.plan.empty() {
		return steps.ErrDone
	}
	pool := &poolv1.VirtualMachinePool{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(s.pool), pool)
	if apierrors.IsNotFound(err) || err == nil && pool.UID != s.pool.UID {
		s.gone = true
		return steps.ErrDone
	}
	if err != nil {
		return fmt.Errorf("reading VirtualMachinePool %s/%s: %w", s.pool.Namespace, s.pool.Name, err)
	}
	selector, err := selectorOf(pool)
	if err != nil {
		return err
	}
	list := &virtv1.VirtualMachineList{}
	asked := selector
	if pool.DeletionTimestamp != nil {
		asked = labels.Everything() // whoever is held still would be for ever
	}
	if err := r.live.List(ctx, list, client.InNamespace(pool.Namespace), client.MatchingLabelsSelector{Selector: asked}); err != nil {
		return fmt.Errorf("listing the VirtualMachines of %s: %w", pool.Namespace, err)
	}
	if err := r.lookAtInstances(ctx, s); err != nil {
		return err
	}
	return s.decide(pool, selector, append(list.Items, strayed(pool, asked, s.seen)...))
}

// lookAtInstances reads the instances past the cache where guests are to be stopped: how
// many may be, and which of them run the old template, is only as true as this. All that
// were made of a pool's template have its label.
func (r *Reconciler) lookAtInstances(ctx context.Context, s *scope) error {
	if len(s.plan.replace)+len(s.plan.restart)+len(s.plan.heal) == 0 {
		return nil
	}
	list := &virtv1.VirtualMachineInstanceList{}
	if err := r.live.List(ctx, list, client.InNamespace(s.pool.Namespace), client.HasLabels{virtv1.VirtualMachinePoolRevisionName}); err != nil {
		return fmt.Errorf("listing the VirtualMachineInstances of %s: %w", s.pool.Namespace, err)
	}
	s.instances = list.Items
	return nil
}

// strayed are the VMs that pool has and that its selector does not match any more. The
// cache is enough for them: they are released only as they were read.
func strayed(pool *poolv1.VirtualMachinePool, selector labels.Selector, seen []virtv1.VirtualMachine) []virtv1.VirtualMachine {
	var found []virtv1.VirtualMachine
	for i := range seen {
		if (metav1.IsControlledBy(&seen[i], pool) || leftHeld(pool, &seen[i])) && !selector.Matches(labels.Set(seen[i].Labels)) {
			found = append(found, seen[i])
		}
	}
	return found
}

// fail notes why the pool is not as it is to be, and returns it.
func (s *scope) fail(reason string, err error) error {
	s.reason, s.failure = reason, err
	return err
}
