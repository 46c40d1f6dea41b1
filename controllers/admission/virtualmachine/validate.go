// Package virtualmachine defaults and validates VirtualMachines at admission.
package virtualmachine

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/controllers/admission/datavolume"
	admitvmi "github.com/slipway-vm/slipway/controllers/admission/virtualmachineinstance"
	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/supported"
)

// Default completes a new VM: the finalizer by which virt-controller stops it before it goes, and the machine type that the
// cluster names, which stays the VM's when the cluster names another. A preference may name one at every start.
func Default(vm *virtv1.VirtualMachine, cluster defaults.Cluster) {
	controllerutil.AddFinalizer(vm, virtv1.VirtualMachineControllerFinalizer)
	if vm.Spec.Template == nil || vm.Spec.Preference != nil || cluster.Machine == "" {
		return
	}
	domain := &vm.Spec.Template.Spec.Domain
	if domain.Machine == nil {
		domain.Machine = &virtv1.Machine{}
	}
	domain.Machine.Type = cmp.Or(domain.Machine.Type, cluster.Machine)
}

// Referred is what is said of a VM elsewhere: by its instance type and preference, nil for none, and by the cluster.
type Referred struct {
	Instancetype *v1beta1.VirtualMachineInstancetypeSpec
	Preference   *v1beta1.VirtualMachinePreferenceSpec
	// Cluster is what the cluster gives and asks of every VM.
	Cluster defaults.Cluster
	// Unknown says that instance type and preference will only be found once the VM's disks exist, so that the
	// VM cannot be checked as a whole yet.
	Unknown bool
}

// Validate returns what is wrong with vm, whose spec is at path.
func Validate(vm *virtv1.VirtualMachine, referred Referred, path *field.Path) field.ErrorList {
	errs := ValidateRun(vm, path)
	if vm.Spec.Template == nil {
		return append(errs, field.Required(path.Child("template"), "missing virtual machine template."))
	}
	errs = append(errs, matchers(vm, path)...)
	errs = append(errs, dataVolumeTemplates(vm, path)...)
	if !referred.Unknown {
		errs = append(errs, template(vm, referred, path.Child("template", "spec"))...)
	}
	return errs
}

// ValidateRun returns what is wrong with whether vm, whose spec is at path, runs, and with whether its volumes are kept.
func ValidateRun(vm *virtv1.VirtualMachine, path *field.Path) field.ErrorList {
	return append(runStrategy(vm, path), keeping(vm)...)
}

// Same says whether two specs differ in nothing but whether the VM runs.
func Same(a, b *virtv1.VirtualMachineSpec) bool {
	one, other := *a, *b
	one.Running, one.RunStrategy, other.Running, other.RunStrategy = nil, nil, nil, nil
	return equality.Semantic.DeepEqual(one, other)
}

// ValidateMatchers refuses to go on with the revision of an instance type or preference that spec, which is at path, does not name any more. old is
// what the spec was, or nil.
func ValidateMatchers(old, spec *virtv1.VirtualMachineSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(was, is virtv1.Matcher, kinds bool, name string) {
		if is.GetRevisionName() != "" && was.GetRevisionName() == is.GetRevisionName() && (was.GetName() != is.GetName() || kinds) {
			errs = append(errs, field.Invalid(path.Child(name, "revisionName"), is.GetRevisionName(),
				"the Matcher Name has been updated without updating the RevisionName; remove it, so that the one that is named now is used"))
		}
	}
	if old != nil && old.Instancetype != nil && spec.Instancetype != nil {
		check(old.Instancetype, spec.Instancetype, !strings.EqualFold(old.Instancetype.Kind, spec.Instancetype.Kind), "instancetype")
	}
	if old != nil && old.Preference != nil && spec.Preference != nil {
		check(old.Preference, spec.Preference, !strings.EqualFold(old.Preference.Kind, spec.Preference.Kind), "preference")
	}
	return errs
}

// keeping checks whether the VM says that its volumes are kept, or that they are not.
func keeping(vm *virtv1.VirtualMachine) field.ErrorList {
	value, given := vm.Annotations[keep.AnnotationVolumes]
	if !given || value == "true" || value == "false" {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(keep.AnnotationVolumes)
	return field.ErrorList{field.NotSupported(path, value, []string{"true", "false"})}
}

func runStrategy(vm *virtv1.VirtualMachine, path *field.Path) field.ErrorList {
	switch {
	case vm.Spec.Running != nil && vm.Spec.RunStrategy != nil:
		return field.ErrorList{field.Invalid(path.Child("running"), *vm.Spec.Running,
			"Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead")}
	case vm.Spec.Running == nil && vm.Spec.RunStrategy == nil:
		return field.ErrorList{field.Required(path.Child("runStrategy"), "RunStrategy must be specified: Always, RerunOnFailure, Once, Manual or Halted")}
	}
	return nil
}

// matchers checks how instance type and preference are named.
func matchers(vm *virtv1.VirtualMachine, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(name, from, field1 string) {
		at := path.Child(field1)
		switch {
		case name == "" && from == "":
			errs = append(errs, field.Required(at.Child("name"), "either name or inferFromVolume must be set"))
		case name != "" && from != "":
			errs = append(errs, field.Invalid(at.Child("name"), name, "name and inferFromVolume are mutually exclusive; keep one of them"))
		}
	}
	if m := vm.Spec.Instancetype; m != nil {
		check(m.Name, m.InferFromVolume, "instancetype")
	}
	if m := vm.Spec.Preference; m != nil {
		check(m.Name, m.InferFromVolume, "preference")
	}
	return errs
}

func dataVolumeTemplates(vm *virtv1.VirtualMachine, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	used := map[string]bool{}
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		switch {
		case volume.DataVolume != nil:
			used[volume.DataVolume.Name] = true
		case volume.PersistentVolumeClaim != nil:
			used[volume.PersistentVolumeClaim.ClaimName] = true
		}
	}
	seen := map[string]bool{}
	for i, dv := range vm.Spec.DataVolumeTemplates {
		at := path.Child("dataVolumeTemplates").Index(i)
		switch {
		case dv.Name == "":
			errs = append(errs, field.Required(at.Child("metadata", "name"), "'name' field must not be empty for DataVolumeTemplate entry "+at.String()))
			continue
		case seen[dv.Name]:
			errs = append(errs, field.Duplicate(at.Child("metadata", "name"), dv.Name))
		case !used[dv.Name]:
			errs = append(errs, field.Required(at, fmt.Sprintf("DataVolumeTemplate entry %s must be referenced in the VMI template's 'volumes' list", at)))
		}
		seen[dv.Name] = true
		if dv.Namespace != "" && dv.Namespace != vm.Namespace {
			errs = append(errs, field.Invalid(at.Child("metadata", "namespace"), dv.Namespace, "must be the VM's own, or left out"))
		}
		errs = append(errs, datavolume.ValidateNew(&dv.ObjectMeta, &dv.Spec, at)...)
	}
	return errs
}

// template checks the VMI that the VM would make, with all that fills it.
func template(vm *virtv1.VirtualMachine, referred Referred, path *field.Path) field.ErrorList {
	vmi := &virtv1.VirtualMachineInstance{Spec: *vm.Spec.Template.Spec.DeepCopy()}
	vmi.Name, vmi.Namespace = vm.Name, vm.Namespace
	defaults.Disks(&vmi.Spec)
	defaults.Interface(&vmi.Spec)
	if errs := instancetype.Apply(vmi, referred.Instancetype, referred.Preference, path); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	if referred.Instancetype != nil || referred.Preference != nil {
		for _, err := range supported.OfObject(supported.VirtualMachineInstance, vmi) {
			err.Detail += " (set by the instance type or preference, or by the VM itself)"
			errs = append(errs, err)
		}
		errs = append(errs, supported.Annotations(vmi.Annotations, nil, field.NewPath("metadata", "annotations"))...)
	}
	defaults.Set(vmi, referred.Cluster)
	errs = append(errs, admitvmi.Validate(&vmi.Spec, path)...)
	return append(errs, admitvmi.Allowed(&vmi.Spec, referred.Cluster, path)...)
}
