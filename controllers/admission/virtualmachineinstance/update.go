package virtualmachineinstance

import (
	"reflect"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/hotplug"
)

// reservedLabels are written by virt-controller alone: they say which node acts on a VMI.
var reservedLabels = []string{virtv1.NodeNameLabel, virtv1.CreatedByLabel, virtv1.MigrationTargetNodeNameLabel}

// ValidateUpdate returns what is wrong with changing before into after by user, with
// Slipway installed in namespace. The spec is what the guest runs with, and the status
// what Slipway says of it; only Slipway's own accounts change them, but that an
// administrator of the cluster may mend a status.
func ValidateUpdate(before, after *virtv1.VirtualMachineInstance, user authenticationv1.UserInfo, namespace string) field.ErrorList {
	if Own(namespace, user.Username) {
		return validateLive(before, after)
	}
	var errs field.ErrorList
	if !reflect.DeepEqual(before.Spec, after.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "update of VMI object is restricted; change the VirtualMachine and restart it"))
	}
	if slices.Contains(user.Groups, "system:masters") {
		return errs
	}
	if !reflect.DeepEqual(before.Status, after.Status) {
		errs = append(errs, field.Forbidden(field.NewPath("status"), "the status is written by virt-controller and virt-handler"))
	}
	for _, label := range reservedLabels {
		if before.Labels[label] != after.Labels[label] {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "labels").Key(label), "modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited"))
		}
	}
	return errs
}

// validateLive checks what our own accounts change in the spec of a guest that may run: its
// size, the volumes that come and go, how long it has to power off, and nothing else.
func validateLive(before, after *virtv1.VirtualMachineInstance) field.ErrorList {
	if equality.Semantic.DeepEqual(&before.Spec, &after.Spec) {
		return nil
	}
	path, allowed := field.NewPath("spec"), before.Spec.DeepCopy()
	if cpu := after.Spec.Domain.CPU; allowed.Domain.CPU != nil && cpu != nil {
		allowed.Domain.CPU.Sockets = cpu.Sockets
	}
	if memory := after.Spec.Domain.Memory; allowed.Domain.Memory != nil && memory != nil {
		allowed.Domain.Memory.Guest = memory.Guest
	}
	allowed.TerminationGracePeriodSeconds = after.Spec.TerminationGracePeriodSeconds
	if !equality.Semantic.DeepEqual(hotplug.Fixed(allowed), hotplug.Fixed(&after.Spec)) {
		return field.ErrorList{field.Forbidden(path, "update of VMI object is restricted; "+
			"only its CPU sockets, its memory and its hotpluggable volumes change while it runs")}
	}
	var errs field.ErrorList
	for _, check := range []func(*virtv1.VirtualMachineInstanceSpec, *field.Path) field.ErrorList{cpu, memory, disks, filesystems, volumes, aliases, pciAddresses} {
		errs = append(errs, check(&after.Spec, path)...)
	}
	return errs
}

// Own says whether user is an account of the installation in namespace.
func Own(namespace, user string) bool {
	for _, account := range []string{"virt-controller", "virt-handler", "virt-api", "virt-operator"} {
		if user == "system:serviceaccount:"+namespace+":"+account {
			return true
		}
	}
	return false
}
