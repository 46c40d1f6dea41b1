package virtualmachinesnapshot

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
)

// What a VM keeps beside its disks, the state of its TPM and the variables of UEFI, is on a claim that no volume of the VM names. Of a
// snapshot it is one more volume.

// StateVolume is the name of the volume that a snapshot of the VM of the name has of its state, as KubeVirt shortens it to 63 characters.
func StateVolume(vm string) string {
	const prefix, longest = names.LabelState, validation.DNS1123LabelMaxLength
	name := prefix + "-" + vm
	if len(name) <= longest {
		return name
	}
	if left := longest - len("-01234567-") - len(vm); left >= 0 {
		return prefix[:left] + "-" + digest(prefix) + "-" + vm
	}
	return prefix + "-" + digest(name)
}

func digest(name string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name)) // never fails
	return fmt.Sprintf("%08x", sum.Sum32())
}

// State returns the claim with the state of vm, nil when it has none.
func State(ctx context.Context, from client.Reader, vm *virtv1.VirtualMachine) (*corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	label := pod.StateLabels(&virtv1.VirtualMachineInstance{ObjectMeta: vm.ObjectMeta})
	if err := from.List(ctx, list, client.InNamespace(vm.Namespace), client.MatchingLabels(label)); err != nil {
		return nil, fmt.Errorf("looking for the state of VirtualMachine %s: %w", client.ObjectKeyFromObject(vm), err)
	}
	return pod.StateIn(list.Items, vm.UID), nil
}

// StateOf is what content has of its VM's state, nil for nothing. It is known by its claim's label, and by that no volume of the VM is it.
func StateOf(content *snapshotv1.VirtualMachineSnapshotContent) *snapshotv1.VolumeBackup {
	machine := content.Spec.Source.VirtualMachine
	for i := range content.Spec.VolumeBackups {
		backup := &content.Spec.VolumeBackups[i]
		if backup.PersistentVolumeClaim.Labels[names.LabelState] != "" && machine != nil && !hasVolume(machine.Spec.Template, backup.VolumeName) {
			return backup
		}
	}
	return nil
}

// LeavesState says whether the VM had a state that snapshot, whose content this is, left out.
func LeavesState(snapshot *snapshotv1.VirtualMachineSnapshot, content *snapshotv1.VirtualMachineSnapshotContent) bool {
	lists, machine := status(snapshot).SnapshotVolumes, content.Spec.Source.VirtualMachine
	if lists == nil || machine == nil {
		return false
	}
	name := StateVolume(machine.Name)
	return slices.Contains(lists.ExcludedVolumes, name) && !hasVolume(machine.Spec.Template, name)
}

func hasVolume(template *virtv1.VirtualMachineInstanceTemplateSpec, name string) bool {
	return template != nil && slices.ContainsFunc(template.Spec.Volumes, func(volume virtv1.Volume) bool { return volume.Name == name })
}

// stateObstacle refuses a VM that has the name of its state's volume for another.
func stateObstacle(vm *virtv1.VirtualMachine) string {
	if name := StateVolume(vm.Name); hasVolume(vm.Spec.Template, name) {
		return fmt.Sprintf("source has a volume %s, and a snapshot has the state of its TPM or firmware by that name; name the volume otherwise", name)
	}
	return ""
}

// stateBackup is the state of vm, or left the claim with it where its storage takes no snapshots.
func (r *Reconciler) stateBackup(ctx context.Context, vm *virtv1.VirtualMachine) (state []backup, left string, err error) {
	claim, err := State(ctx, r.live, vm)
	if err != nil || claim == nil {
		return nil, "", err
	}
	class, err := r.classOf(ctx, claim.Spec.StorageClassName)
	if err != nil {
		return nil, "", err
	}
	if class == "" {
		return nil, claim.Name, nil
	}
	return []backup{{volume: StateVolume(vm.Name), claim: claim}}, "", nil
}
