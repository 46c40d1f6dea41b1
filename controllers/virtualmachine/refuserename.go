package virtualmachine

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/internal/rename"
)

// RefuseRename says why vm, whose instance vmi is nil when there is none, cannot be renamed as it is; "" when it can.
func RefuseRename(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) string {
	for _, reason := range []string{
		refuseObject(vm), refuseRunning(vm, vmi), refuseBusy(&vm.Status), refuseMigrating(vm),
	} {
		if reason != "" {
			return reason
		}
	}
	return ""
}

// refuseObject judges what the VM is.
func refuseObject(vm *virtv1.VirtualMachine) string {
	owner := metav1.GetControllerOf(vm)
	switch origin, arriving := rename.OriginOf(vm); {
	case vm.DeletionTimestamp != nil:
		return "it is being deleted"
	case arriving:
		return fmt.Sprintf("it is still being renamed from %s", origin.Name)
	case owner != nil:
		return fmt.Sprintf("it belongs to %s %s, which would make another VM in its place", owner.Kind, owner.Name)
	}
	return ""
}

// refuseRunning judges whether the VM runs, or is about to.
func refuseRunning(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) string {
	const refusal = "renaming a running VM is not allowed: "
	s := &scope{vm: vm, vmi: vmi}
	s.strategy, s.strategyError = strategyOf(vm)
	switch {
	case s.strategyError != nil:
		return s.strategyError.Error()
	case vmi != nil && vmi.IsFinal():
		return fmt.Sprintf("its VirtualMachineInstance is kept in phase %s; delete that first", vmi.Status.Phase)
	case vmi != nil:
		return fmt.Sprintf("%sits VirtualMachineInstance is in phase %s; stop it first", refusal, vmi.Status.Phase)
	case s.wanted():
		return fmt.Sprintf("%swith runStrategy %s it starts by itself; stop it first", refusal, s.strategy.name)
	case len(vm.Status.StateChangeRequests) > 0:
		return refusal + "a start or stop of it is under way; try again when that is done"
	}
	return ""
}

// refuseBusy judges what is being done with the VM's disks, which goes by the VM's name.
func refuseBusy(status *virtv1.VirtualMachineStatus) string {
	switch {
	case status.SnapshotInProgress != nil:
		return fmt.Sprintf("VirtualMachineSnapshot %s of it is being taken; try again when that is done", *status.SnapshotInProgress)
	case status.RestoreInProgress != nil:
		return fmt.Sprintf("VirtualMachineRestore %s is restoring it; try again when that is done", *status.RestoreInProgress)
	case status.MemoryDumpRequest != nil:
		return fmt.Sprintf("its memory dump on claim %s belongs to its name; remove the dump first", status.MemoryDumpRequest.ClaimName)
	case len(status.VolumeRequests) > 0:
		return "a volume is being added to it or removed; try again when that is done"
	}
	return ""
}

// refuseMigrating judges whether the VM's disks are yet to be copied, of which the record has its uid.
func refuseMigrating(vm *virtv1.VirtualMachine) string {
	if !volumemigration.Pending(vm) {
		return ""
	}
	return "its volumes are being copied to other claims; try again when that is done, or change them back"
}

// RefuseTarget says why no VM can be given the name, whose VM and VMI are nil when there are none; "" when one can.
func RefuseTarget(name string, vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) string {
	switch problems := validation.IsDNS1123Subdomain(name); {
	case len(problems) > 0:
		return fmt.Sprintf("The VM's new name is not valid: %s", problems[0])
	case vm != nil:
		return fmt.Sprintf("VirtualMachine %s exists", name)
	case vmi != nil:
		return fmt.Sprintf("VirtualMachineInstance %s exists; delete it first", name)
	}
	return ""
}
