package admission

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/supported"
)

// templateAnnotations refuses what the template of a VM, whose spec is at path, gives its instances of
// annotations that are not acted on. old is what the spec was, or nil.
func templateAnnotations(spec, old *virtv1.VirtualMachineSpec, path *field.Path) field.ErrorList {
	if spec.Template == nil {
		return nil
	}
	var before map[string]string
	if old != nil && old.Template != nil {
		before = old.Template.ObjectMeta.Annotations
	}
	now, at := spec.Template.ObjectMeta.Annotations, path.Child("template", "metadata", "annotations")
	return append(supported.Annotations(now, before, at), backupRequest(now, before, at)...)
}

// setAnnotations is templateAnnotations for a replica set; old may be nil.
func setAnnotations(set, old *virtv1.VirtualMachineInstanceReplicaSet) field.ErrorList {
	spec := &virtv1.VirtualMachineSpec{Template: set.Spec.Template}
	var before *virtv1.VirtualMachineSpec
	if old != nil {
		before = &virtv1.VirtualMachineSpec{Template: old.Spec.Template}
	}
	return templateAnnotations(spec, before, field.NewPath("spec"))
}

// instanceAnnotations refuses annotations of an instance that are not acted on; old may be nil.
func instanceAnnotations(vmi, old *virtv1.VirtualMachineInstance) field.ErrorList {
	var before map[string]string
	if old != nil {
		before = old.Annotations
	}
	at := field.NewPath("metadata", "annotations")
	return append(supported.Annotations(vmi.Annotations, before, at), backupRequest(vmi.Annotations, before, at)...)
}
