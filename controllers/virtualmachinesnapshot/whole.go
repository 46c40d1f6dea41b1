package virtualmachinesnapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What makes another VM of a snapshot wants all of the VM's disks.

// Lacks says which disks of vm a snapshot of it would leave out, in the field's words; lacks is nil for none.
func Lacks(ctx context.Context, from client.Reader, vm *virtv1.VirtualMachine) (lacks, err error) {
	without, unknown, err := left(ctx, from, vm)
	if err != nil {
		return nil, fmt.Errorf("looking at the volumes of VirtualMachine %s: %w", client.ObjectKeyFromObject(vm), err)
	}
	var all []error
	for _, volume := range without {
		all = append(all, fmt.Errorf("Virtual Machine volume %s does not support snapshots", volume)) //nolint:staticcheck // the field's words
	}
	for _, volume := range unknown {
		all = append(all, fmt.Errorf("Virtual Machine volume %s snapshot support unknown", volume)) //nolint:staticcheck // the field's words
	}
	return errors.Join(all...), nil
}

// NotTaken names the volumes of content's VM, which has a template, whose disks content does not have. A memory dump is none.
func NotTaken(content *snapshotv1.VirtualMachineSnapshotContent) []string {
	var missing []string
	for _, volume := range content.Spec.Source.VirtualMachine.Spec.Template.Spec.Volumes {
		taken := slices.ContainsFunc(content.Spec.VolumeBackups, func(b snapshotv1.VolumeBackup) bool {
			return b.VolumeName == volume.Name && b.VolumeSnapshotName != nil
		})
		if ClaimOf(&volume) != "" && volume.MemoryDump == nil && !taken {
			missing = append(missing, volume.Name)
		}
	}
	return missing
}

// Said is what a condition of a snapshot or restore says, with its message where it has one.
func Said(conditions []snapshotv1.Condition, kind snapshotv1.ConditionType) string {
	for _, c := range conditions {
		if c.Type != kind {
			continue
		}
		if c.Message != "" {
			return c.Reason + ": " + c.Message
		}
		return c.Reason
	}
	return ""
}
