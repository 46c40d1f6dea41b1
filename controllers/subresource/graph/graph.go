// Package graph tells which objects a virtual machine is made of, as a tree of references: who backs
// a machine up, or moves it to another cluster, takes these along. It reads nothing.
package graph

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
)

// Label says of a node what its object is for: one of the values below.
const Label = "kubevirt.io/dependency-type"

// Values of Label.
const (
	storage = "storage"
	network = "network"
	compute = "compute"
	config  = "config"
)

const (
	instancetypes = "instancetype.kubevirt.io"
	networks      = "k8s.cni.cncf.io"
)

// kind is a kind of objects that nodes stand for.
type kind struct{ group, name, purpose string }

var (
	machine    = kind{"kubevirt.io", "VirtualMachine", compute}
	instance   = kind{"kubevirt.io", "VirtualMachineInstance", compute}
	pod        = kind{"", "Pod", compute}
	dataVolume = kind{"cdi.kubevirt.io", "DataVolume", storage}
	claim      = kind{"", "PersistentVolumeClaim", storage}
	configMap  = kind{"", "ConfigMap", config}
	secret     = kind{"", "Secret", config}
	revision   = kind{"apps", "ControllerRevision", config}
	account    = kind{"", "ServiceAccount", network}
	attachment = kind{networks, "NetworkAttachmentDefinition", network}
)

// node stands for the object of that name, in namespace, which is "" for objects of the whole cluster.
func (k kind) node(namespace, name string, children ...virtv1.ObjectGraphNode) virtv1.ObjectGraphNode {
	return virtv1.ObjectGraphNode{
		ObjectReference: corev1.TypedObjectReference{APIGroup: &k.group, Kind: k.name, Namespace: &namespace, Name: name},
		Labels:          map[string]string{Label: k.purpose},
		Children:        children,
	}
}

// optional is node, marked as one that the machine runs without on a cluster that has another.
func (k kind) optional(namespace, name string) virtv1.ObjectGraphNode {
	n := k.node(namespace, name)
	n.Optional = new(true)
	return n
}

// Machine is the tree below vm. runs says that it has an instance, and launcher is the pod of that, "" for none.
func Machine(vm *virtv1.VirtualMachine, runs bool, launcher string) virtv1.ObjectGraphNode {
	var children []virtv1.ObjectGraphNode
	if runs {
		children = append(children, instance.node(vm.Namespace, vm.Name, launcherPod(vm.Namespace, launcher)...))
	}
	if it := vm.Spec.Instancetype; it != nil {
		children = append(children, matched(vm.Namespace, it, vm.Status.InstancetypeRef)...)
	}
	if preference := vm.Spec.Preference; preference != nil {
		children = append(children, matched(vm.Namespace, preference, vm.Status.PreferenceRef)...)
	}
	if vm.Spec.Template != nil {
		children = append(children, ofSpec(vm.Namespace, &vm.Spec.Template.Spec)...)
	}
	return machine.node(vm.Namespace, vm.Name, children...)
}

// Instance is the tree below vmi. launcher is its pod, "" for none.
func Instance(vmi *virtv1.VirtualMachineInstance, launcher string) virtv1.ObjectGraphNode {
	children := append(launcherPod(vmi.Namespace, launcher), ofSpec(vmi.Namespace, &vmi.Spec)...)
	return instance.node(vmi.Namespace, vmi.Name, children...)
}

func launcherPod(namespace, name string) []virtv1.ObjectGraphNode {
	if name == "" {
		return nil
	}
	return []virtv1.ObjectGraphNode{pod.node(namespace, name)}
}

// Filter takes the nodes out of root's tree that are optional, unless optional ones are wanted, or whose
// labels selected does not match; with a node goes what is below it. The root stays.
func Filter(root virtv1.ObjectGraphNode, optional bool, selected labels.Selector) virtv1.ObjectGraphNode {
	var kept []virtv1.ObjectGraphNode
	for _, child := range root.Children {
		unwanted := !optional && child.Optional != nil && *child.Optional
		if !unwanted && selected.Matches(labels.Set(child.Labels)) {
			kept = append(kept, Filter(child, optional, selected))
		}
	}
	root.Children = kept
	return root
}
