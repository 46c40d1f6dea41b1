package replicaset

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
)

// plan is what a replica set has, and what there is to do about it.
type plan struct {
	// active are the instances that count: those of the set, with those that it takes on,
	// that neither ended nor are being deleted.
	active []*virtv1.VirtualMachineInstance
	// adopt are instances of nobody that the selector matches, release those of the set
	// that it does not match any more.
	adopt, release []*virtv1.VirtualMachineInstance
	// create is how many are missing; remove are those that are too much.
	create int
	remove []*virtv1.VirtualMachineInstance
	// finished are those that ended. Others take their places.
	finished []*virtv1.VirtualMachineInstance
}

// empty says whether there is nothing to do.
func (p plan) empty() bool {
	return p.create == 0 && len(p.adopt)+len(p.release)+len(p.remove)+len(p.finished) == 0
}

// planFor plans a pass over set by the instances of its namespace. A set that is being
// deleted does nothing: what becomes of its instances is said by how it is deleted. One
// that is paused only settles which instances are its own.
func planFor(set *virtv1.VirtualMachineInstanceReplicaSet, selector labels.Selector, instances []virtv1.VirtualMachineInstance) plan {
	var p plan
	for i := range instances {
		p.sort(set, selector, &instances[i])
	}
	if set.DeletionTimestamp != nil {
		return plan{active: p.active}
	}
	if set.Spec.Paused {
		p.finished = nil
		return p
	}
	if missing := wanted(set) - len(p.active); missing > 0 {
		p.create = missing
	} else {
		p.remove = slices.SortedFunc(slices.Values(p.active), dispensableFirst)[:-missing]
	}
	return p
}

// sort puts an instance where it belongs.
func (p *plan) sort(set *virtv1.VirtualMachineInstanceReplicaSet, selector labels.Selector, vmi *virtv1.VirtualMachineInstance) {
	matches := selector.Matches(labels.Set(vmi.Labels))
	switch {
	case metav1.IsControlledBy(vmi, set):
		if !matches {
			p.release = append(p.release, vmi)
			return
		}
	case matches && metav1.GetControllerOf(vmi) == nil && vmi.DeletionTimestamp == nil && set.DeletionTimestamp == nil:
		p.adopt = append(p.adopt, vmi)
	default:
		return
	}
	switch {
	case vmi.DeletionTimestamp != nil:
	case vmi.IsFinal():
		p.finished = append(p.finished, vmi)
	default:
		p.active = append(p.active, vmi)
	}
}

// wanted is how many instances set is to have.
func wanted(set *virtv1.VirtualMachineInstanceReplicaSet) int {
	return max(int(ptr.Deref(set.Spec.Replicas, 1)), 0)
}

// dispensableFirst orders instances by who is missed least: those that serve nobody yet,
// and of those alike the youngest.
func dispensableFirst(a, b *virtv1.VirtualMachineInstance) int {
	if ready(a) != ready(b) {
		if ready(b) {
			return -1
		}
		return 1
	}
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// ready says whether the instance's guest runs.
func ready(vmi *virtv1.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.Status.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool {
		return c.Type == virtv1.VirtualMachineInstanceReady && c.Status == corev1.ConditionTrue
	})
}
