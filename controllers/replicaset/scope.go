package replicaset

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/steps"
)

// scope is what one pass over a replica set knows and decides.
type scope struct {
	set *virtv1.VirtualMachineInstanceReplicaSet
	now time.Time
	// selector says which instances are the set's.
	selector labels.Selector
	// seen are the instances of the set's namespace as the cache has them; they are not written to.
	seen []virtv1.VirtualMachineInstance
	// plan is what there is to do: by the cache at first, by the API server after lookAgain.
	plan plan
	// active are the set's instances that count; the steps add what they make and take away what they delete.
	active []*virtv1.VirtualMachineInstance
	// failure says why the number of instances could not be reached, and reason in a word;
	// fail sets them.
	failure error
	reason  string
	// gone says that the set was deleted since it was read, so nothing can be written to it.
	gone bool
}

func (r *Reconciler) newScope(ctx context.Context, set *virtv1.VirtualMachineInstanceReplicaSet) (*scope, error) {
	selector, err := selectorOf(set)
	if err != nil {
		return nil, err
	}
	list := &virtv1.VirtualMachineInstanceList{}
	if err := r.List(ctx, list, client.InNamespace(set.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the VirtualMachineInstances of %s: %w", set.Namespace, err)
	}
	s := &scope{now: r.now(), seen: list.Items}
	s.decide(set, selector, s.seen)
	return s, nil
}

// selectorOf reads set's selector. Only another spec mends one that says nothing, and that
// brings another pass.
func selectorOf(set *virtv1.VirtualMachineInstanceReplicaSet) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("reading the selector of VirtualMachineInstanceReplicaSet %s/%s: %w", set.Namespace, set.Name, err)) //nolint:wrapcheck // it is wrapped within
	}
	return selector, nil
}

// decide plans the pass for set, with the instances that there are.
func (s *scope) decide(set *virtv1.VirtualMachineInstanceReplicaSet, selector labels.Selector, instances []virtv1.VirtualMachineInstance) {
	s.set, s.selector = set, selector
	s.plan = planFor(set, selector, instances)
	s.active = slices.Clone(s.plan.active)
}

// lookAgain ends a pass in which there is nothing to do. Else it reads set and instances
// past the cache, and plans by that: what the last pass has made is neither made nor
// deleted again, and a set that is being deleted takes nobody on.
func (r *Reconciler) lookAgain(ctx context.Context, s *scope) error {
	if s.plan.empty() {
		return steps.ErrDone
	}
	set := &virtv1.VirtualMachineInstanceReplicaSet{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(s.set), set)
	if apierrors.IsNotFound(err) || err == nil && set.UID != s.set.UID {
		s.gone = true
		return steps.ErrDone
	}
	if err != nil {
		return fmt.Errorf("reading VirtualMachineInstanceReplicaSet %s/%s: %w", s.set.Namespace, s.set.Name, err)
	}
	selector, err := selectorOf(set)
	if err != nil {
		return err
	}
	list := &virtv1.VirtualMachineInstanceList{}
	if err := r.live.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("listing the VirtualMachineInstances of %s: %w", set.Namespace, err)
	}
	s.decide(set, selector, append(list.Items, strayed(set, selector, s.seen)...))
	return nil
}

// strayed are the instances that set has and that its selector does not match any more.
// The cache is enough for them: they are released only as they were read.
func strayed(set *virtv1.VirtualMachineInstanceReplicaSet, selector labels.Selector, seen []virtv1.VirtualMachineInstance) []virtv1.VirtualMachineInstance {
	var found []virtv1.VirtualMachineInstance
	for i := range seen {
		if metav1.IsControlledBy(&seen[i], set) && !selector.Matches(labels.Set(seen[i].Labels)) {
			found = append(found, seen[i])
		}
	}
	return found
}

// fail notes why the set has not as many instances as it is to have, and returns it.
func (s *scope) fail(reason string, err error) error {
	s.reason, s.failure = reason, err
	return err
}

// forget takes an instance that is going from those that count.
func (s *scope) forget(vmi *virtv1.VirtualMachineInstance) {
	s.active = slices.DeleteFunc(s.active, func(other *virtv1.VirtualMachineInstance) bool { return other.UID == vmi.UID })
}
