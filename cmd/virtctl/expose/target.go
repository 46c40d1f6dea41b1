package expose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is a kind that can be exposed.
type kind string

const (
	virtualMachine kind = "VirtualMachine"
	instance       kind = "VirtualMachineInstance"
	replicaSet     kind = "VirtualMachineInstanceReplicaSet"
)

// kindOf returns the kind that the user's word names.
func kindOf(word string) (kind, error) {
	switch strings.ToLower(word) {
	case "vm", "vms", "virtualmachine", "virtualmachines":
		return virtualMachine, nil
	case "vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances":
		return instance, nil
	case "vmirs", "vmirss", "virtualmachineinstancereplicaset", "virtualmachineinstancereplicasets":
		return replicaSet, nil
	}
	return "", fmt.Errorf("unsupported resource type: %s; write vm, vmi or vmirs", word)
}

// target is the object to expose.
type target struct {
	kind            kind
	word            string // of the user for the kind
	namespace, name string
}

func (t target) String() string { return fmt.Sprintf("%s %s/%s", t.kind, t.namespace, t.name) }

// exposed is what counts of the object.
type exposed struct {
	labels map[string]string
	spec   *virtv1.VirtualMachineInstanceSpec
}

// read gets the object.
func (t target) read(ctx context.Context, c client.Client) (exposed, error) {
	get := func(into client.Object) error {
		err := c.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: t.name}, into)
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("reading %s: this cluster does not serve that kind: %w", t, err)
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", t, err)
		}
		return nil
	}
	switch t.kind {
	case virtualMachine:
		var vm virtv1.VirtualMachine
		if err := get(&vm); err != nil {
			return exposed{}, err
		}
		return ofMachine(&vm), nil
	case instance:
		var vmi virtv1.VirtualMachineInstance
		if err := get(&vmi); err != nil {
			return exposed{}, err
		}
		return exposed{labels: vmi.Labels, spec: &vmi.Spec}, nil
	default:
		var set virtv1.VirtualMachineInstanceReplicaSet
		if err := get(&set); err != nil {
			return exposed{}, err
		}
		return ofReplicaSet(&set)
	}
}

func ofMachine(vm *virtv1.VirtualMachine) exposed {
	if vm.Spec.Template == nil {
		return exposed{spec: &virtv1.VirtualMachineInstanceSpec{}}
	}
	return exposed{labels: vm.Spec.Template.ObjectMeta.Labels, spec: &vm.Spec.Template.Spec}
}

func ofReplicaSet(set *virtv1.VirtualMachineInstanceReplicaSet) (exposed, error) {
	of := exposed{spec: &virtv1.VirtualMachineInstanceSpec{}}
	if set.Spec.Template != nil {
		of.spec = &set.Spec.Template.Spec
	}
	if set.Spec.Selector == nil {
		return of, nil
	}
	if len(set.Spec.Selector.MatchExpressions) > 0 {
		return of, errors.New("cannot expose VirtualMachineInstanceReplicaSet with match expressions: a Service selects by labels alone; write its selector as matchLabels, or make the Service by hand")
	}
	of.labels = set.Spec.Selector.MatchLabels
	return of, nil
}

// passing are labels that change while a VM lives: a Service must not select by them.
var passing = []string{virtv1.NodeNameLabel, virtv1.MigrationTargetNodeNameLabel, virtv1.VirtualMachinePoolRevisionName}

// selector are the labels by which a Service finds the object's pods.
func (e exposed) selector() map[string]string {
	lasting := maps.Clone(e.labels)
	maps.DeleteFunc(lasting, func(label, _ string) bool { return slices.Contains(passing, label) })
	return lasting
}
