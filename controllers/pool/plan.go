package pool

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// plan is what a pool has, and what there is to do about it.
type plan struct {
	// digest is the digest of the pool's template.
	digest string
	// members are the VMs of the pool, with those that are going: a name is taken until its
	// VM and its disks are gone, and is given again then.
	members []*virtv1.VirtualMachine
	// release are VMs of the pool that its selector does not match any more.
	release []*virtv1.VirtualMachine
	// create is how many are missing; remove are those that are too much.
	create int
	remove []*virtv1.VirtualMachine
	// update are VMs that get the pool's template, replace those that are made anew from it,
	// restart those whose guests do not run it yet.
	update, replace, restart []*virtv1.VirtualMachine
	// heal are VMs that are made anew because they do not start; again is after how long the next one may be due, 0 for none.
	heal  []ailment
	again time.Duration
	// hold are VMs that get the pool's finalizer, keep those that somebody deleted and that are let go without their disks,
	// loosen those that are let go as they are.
	hold, keep, loosen []*virtv1.VirtualMachine
	// guard gives the pool the finalizer, leave takes it from one that is deleted.
	guard, leave bool
}

// empty says whether there is nothing to do.
func (p plan) empty() bool {
	return p.create == 0 && !p.guard && !p.leave &&
		len(p.release)+len(p.remove)+len(p.update)+len(p.replace)+len(p.restart)+len(p.heal)+len(p.hold)+len(p.keep)+len(p.loosen) == 0
}

// planFor plans a pass over pool by the VMs and instances of its namespace. A pool that is
// being deleted holds its VMs no more, and does nothing else: what becomes of them is said by how it is deleted. One
// that is paused only settles which VMs are its own, and holds these.
func planFor(pool *poolv1.VirtualMachinePool, selector labels.Selector, machines []virtv1.VirtualMachine, instances []virtv1.VirtualMachineInstance, now time.Time) (plan, error) {
	digest, err := digestOf(pool)
	if err != nil {
		return plan{}, err
	}
	guarded := controllerutil.ContainsFinalizer(pool, finalizer)
	p := plan{digest: digest, guard: holds(pool) && !guarded, leave: pool.DeletionTimestamp != nil && guarded}
	for i := range machines {
		p.planOwner(pool, selector, &machines[i])
	}
	if pool.DeletionTimestamp != nil || pool.Spec.Paused {
		return p, nil
	}
	if err := p.scale(pool); err != nil {
		return plan{}, err
	}
	guests := map[string]*virtv1.VirtualMachineInstance{}
	for i := range instances {
		guests[instances[i].Name] = &instances[i]
	}
	p.planHealing(pool, existing(p.members), guests, now)
	// What is about to change in number is not changed otherwise.
	if p.create > 0 || len(p.remove)+len(p.heal) > 0 || unmanagedUpdate(pool) {
		return p, nil
	}
	return p, p.renew(pool, guests)
}

// planOwner plans whose vm is, and whether it is held.
func (p *plan) planOwner(pool *poolv1.VirtualMachinePool, selector labels.Selector, vm *virtv1.VirtualMachine) {
	switch {
	case !metav1.IsControlledBy(vm, pool):
		if leftHeld(pool, vm) {
			p.loosen = append(p.loosen, vm)
		}
	case selector.Matches(labels.Set(vm.Labels)):
		p.members = append(p.members, vm)
		p.planHold(pool, vm)
	case pool.DeletionTimestamp == nil:
		p.release = append(p.release, vm) // and held no more
	default:
		p.planHold(pool, vm)
	}
}

// scale plans how the number is reached. Nothing takes the place of a VM that is going
// before it has gone: its name and disks are to be had then.
func (p *plan) scale(pool *poolv1.VirtualMachinePool) error {
	staying := existing(p.members)
	p.create = max(wanted(pool)-len(p.members), 0)
	surplus := len(staying) - wanted(pool)
	if surplus <= 0 || !scalesIn(pool) {
		return nil
	}
	chosen, err := choose(staying, scaleInPolicy(pool))
	if err != nil {
		return fmt.Errorf("choosing what VirtualMachinePool %s/%s is to lose: %w", pool.Namespace, pool.Name, err)
	}
	p.remove = chosen[:min(surplus, len(chosen))]
	return nil
}

// renew plans how the template comes to the VMs and to their guests.
func (p *plan) renew(pool *poolv1.VirtualMachinePool, guests map[string]*virtv1.VirtualMachineInstance) error {
	chosen, err := choose(existing(p.members), updatePolicy(pool))
	if err != nil {
		return fmt.Errorf("choosing what of VirtualMachinePool %s/%s is updated: %w", pool.Namespace, pool.Name, err)
	}
	left := maxUnavailable(pool)
	for _, vm := range p.members {
		if unavailable(vm, guests[vm.Name]) {
			left--
		}
	}
	for _, vm := range chosen {
		var into *[]*virtv1.VirtualMachine
		switch current := vm.Annotations[annotationTemplate] == p.digest; {
		case !current && proactive(pool) && otherDisks(pool, vm):
			into = &p.replace
		case !current:
			p.update = append(p.update, vm)
			continue
		case proactive(pool) && mustRestart(vm, guests[vm.Name]):
			into = &p.restart
		default:
			continue
		}
		if !unavailable(vm, guests[vm.Name]) {
			if left <= 0 {
				continue // the next one that becomes ready brings another pass
			}
			left--
		}
		*into = append(*into, vm)
	}
	return nil
}

// otherDisks says whether the pool's template fills other disks than vm has. A disk is
// never filled twice, so the VM is made anew.
func otherDisks(pool *poolv1.VirtualMachinePool, vm *virtv1.VirtualMachine) bool {
	ordinal, ok := ordinalOf(pool, vm.Name)
	if !ok {
		return false
	}
	return !equality.Semantic.DeepEqual(indexed(pool, ordinal).DataVolumeTemplates, vm.Spec.DataVolumeTemplates)
}

// wanted is how many VMs pool is to have.
func wanted(pool *poolv1.VirtualMachinePool) int {
	return max(int(ptr.Deref(pool.Spec.Replicas, 1)), 0)
}

// maxUnavailable is how many guests of pool may stand still for an update: at least one,
// or it would never end.
func maxUnavailable(pool *poolv1.VirtualMachinePool) int {
	given := ptr.Deref(pool.Spec.MaxUnavailable, intstr.FromString("100%"))
	scaled, err := intstr.GetScaledValueFromIntOrPercent(&given, wanted(pool), false)
	if err != nil {
		return 1 // admission refuses it
	}
	return max(scaled, 1)
}

// existing are the machines that are not going.
func existing(machines []*virtv1.VirtualMachine) []*virtv1.VirtualMachine {
	var kept []*virtv1.VirtualMachine
	for _, vm := range machines {
		if vm.DeletionTimestamp == nil {
			kept = append(kept, vm)
		}
	}
	return kept
}
