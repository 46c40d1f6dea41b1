package virtualmachine

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
	"github.com/slipway-vm/slipway/internal/guestid"
	"github.com/slipway-vm/slipway/internal/rename"
)

// renamed makes the VM that takes old's place under another name: the same but for what its guest
// was known by and what followed from old's name or uid, which its spec says from now on. It does not start
// before old is gone.
func renamed(old *virtv1.VirtualMachine, name string) *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: old.Namespace,
			Labels:          maps.Clone(old.Labels),
			Annotations:     maps.Clone(old.Annotations),
			OwnerReferences: slices.Clone(old.OwnerReferences),
			Finalizers:      []string{virtv1.VirtualMachineControllerFinalizer},
		},
		Spec: *old.Spec.DeepCopy(),
	}
	if vm.Annotations == nil {
		vm.Annotations = map[string]string{}
	}
	for _, ofOld := range []string{rename.AnnotationTarget, rename.AnnotationFailure, corev1.LastAppliedConfigAnnotation} {
		delete(vm.Annotations, ofOld)
	}
	vm.Annotations[rename.AnnotationOrigin] = rename.Origin{Name: old.Name, UID: old.UID}.String()
	if vm.Spec.Template != nil {
		keepGuest(vm.Spec.Template, old, name)
	}
	return vm
}

// keepGuest makes template say what its guest was known by as old's, which takes the name.
func keepGuest(template *virtv1.VirtualMachineInstanceTemplateSpec, old *virtv1.VirtualMachine, name string) {
	spec, meta := &template.Spec, &template.ObjectMeta
	spec.Domain.Firmware = firmwareOf(spec.Domain.Firmware, old)
	defaults.Interface(spec)
	for i := range spec.Domain.Devices.Interfaces {
		if nic := &spec.Domain.Devices.Interfaces[i]; guestid.MACFollows(nic) {
			nic.MacAddress = guestid.MAC(old.Namespace, old.Name, nic.Name).String()
		}
	}
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	if meta.Annotations[guestid.AnnotationName] == "" {
		meta.Annotations[guestid.AnnotationName] = old.Name
	}
	if meta.Annotations[guestid.AnnotationName] == name {
		delete(meta.Annotations, guestid.AnnotationName)
	}
}
