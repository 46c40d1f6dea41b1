package pool

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
)

// scalesIn says whether the pool deletes VMs that are too much: with the other strategies
// its user does.
func scalesIn(pool *poolv1.VirtualMachinePool) bool {
	strategy := pool.Spec.ScaleInStrategy
	return strategy == nil || strategy.Unmanaged == nil && strategy.Opportunistic == nil
}

func scaleInPolicy(pool *poolv1.VirtualMachinePool) *poolv1.VirtualMachinePoolSelectionPolicy {
	if strategy := pool.Spec.ScaleInStrategy; strategy != nil && strategy.Proactive != nil {
		return strategy.Proactive.SelectionPolicy
	}
	return nil
}

// preserves says whether the disks of VMs that are too much are kept.
func preserves(pool *poolv1.VirtualMachinePool) bool {
	strategy := pool.Spec.ScaleInStrategy
	return strategy != nil && strategy.Proactive != nil && keepsDisks(strategy.Proactive.StatePreservation)
}

// keepsDisks says whether disks stay for the next VM of a name. Online, which asks for the guest's memory too, is refused at admission: a
// pool that had it before it came here keeps its disks, for they could not be brought back.
func keepsDisks(given *poolv1.StatePreservation) bool {
	return ptr.Deref(given, poolv1.StatePreservationDisabled) != poolv1.StatePreservationDisabled
}

func unmanagedUpdate(pool *poolv1.VirtualMachinePool) bool {
	return pool.Spec.UpdateStrategy != nil && pool.Spec.UpdateStrategy.Unmanaged != nil
}

// proactive says whether a new template stops guests. Else it waits for their next start.
func proactive(pool *poolv1.VirtualMachinePool) bool {
	strategy := pool.Spec.UpdateStrategy
	return strategy == nil || strategy.Unmanaged == nil && strategy.Opportunistic == nil
}

func updatePolicy(pool *poolv1.VirtualMachinePool) *poolv1.VirtualMachinePoolSelectionPolicy {
	if strategy := pool.Spec.UpdateStrategy; strategy != nil && strategy.Proactive != nil {
		return strategy.Proactive.SelectionPolicy
	}
	return nil
}

// choose returns the machines that policy lets be taken, those that are taken first at the
// front. nil takes any.
func choose(machines []*virtv1.VirtualMachine, policy *poolv1.VirtualMachinePoolSelectionPolicy) ([]*virtv1.VirtualMachine, error) {
	if policy == nil {
		policy = &poolv1.VirtualMachinePoolSelectionPolicy{}
	}
	selects, err := selecting(policy.Selectors)
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(slices.Clone(machines), func(vm *virtv1.VirtualMachine) bool { return !selects(vm) })
	order(chosen, ptr.Deref(policy.SortPolicy, poolv1.VirtualMachinePoolSortPolicyRandom))
	return chosen, nil
}

// selecting says of a VM whether selectors, which may be nil, let it be taken: all that are given must.
func selecting(selectors *poolv1.VirtualMachinePoolSelectors) (func(*virtv1.VirtualMachine) bool, error) {
	if selectors == nil {
		return func(*virtv1.VirtualMachine) bool { return true }, nil
	}
	byLabels, byNodes := labels.Everything(), labels.Everything()
	var err error
	if given := selectors.LabelSelector; given != nil {
		if byLabels, err = metav1.LabelSelectorAsSelector(given); err != nil {
			return nil, fmt.Errorf("reading selectors.labelSelector: %w", err)
		}
	}
	if given := selectors.NodeSelectorRequirementMatcher; given != nil {
		if byNodes, err = requirements(*given); err != nil {
			return nil, fmt.Errorf("reading selectors.nodeSelectorRequirementMatcher%w", err)
		}
	}
	return func(vm *virtv1.VirtualMachine) bool {
		template := vm.Spec.Template
		if template == nil {
			return byLabels.Empty() && byNodes.Empty()
		}
		return byLabels.Matches(labels.Set(template.ObjectMeta.Labels)) && byNodes.Matches(labels.Set(template.Spec.NodeSelector))
	}, nil
}

func order(machines []*virtv1.VirtualMachine, policy poolv1.VirtualMachinePoolSortPolicy) {
	byName := func(a, b *virtv1.VirtualMachine) int { return cmp.Compare(last(a), last(b)) }
	byAge := func(a, b *virtv1.VirtualMachine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), byName(a, b))
	}
	switch policy {
	case poolv1.VirtualMachinePoolSortPolicyAscendingOrder:
		slices.SortFunc(machines, byName)
	case poolv1.VirtualMachinePoolSortPolicyDescendingOrder:
		slices.SortFunc(machines, func(a, b *virtv1.VirtualMachine) int { return byName(b, a) })
	case poolv1.VirtualMachinePoolSortPolicyOldest:
		slices.SortFunc(machines, byAge)
	case poolv1.VirtualMachinePoolSortPolicyNewest:
		slices.SortFunc(machines, func(a, b *virtv1.VirtualMachine) int { return byAge(b, a) })
	case poolv1.VirtualMachinePoolSortPolicyRandom:
		rand.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
	}
}

// last is the number at the end of vm's name; one without comes after all others.
func last(vm *virtv1.VirtualMachine) int {
	n, err := strconv.Atoi(vm.Name[strings.LastIndexByte(vm.Name, '-')+1:])
	if err != nil {
		return math.MaxInt
	}
	return n
}
