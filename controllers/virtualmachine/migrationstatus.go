package virtualmachine

import (
	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/volumemigration"
)

// conditionVolumes is true while volumes of the VM are being copied; the field has it of instances.
const conditionVolumes = virtv1.VirtualMachineConditionType(virtv1.VirtualMachineInstanceVolumesChange)

// tellMigration has a Warning event of what somebody must mend, unless the VM's condition says it already.
func (r *Reconciler) tellMigration(s *scope) {
	help := s.migration.find(volumemigration.Help)
	if help == nil {
		return
	}
	for _, c := range s.vm.Status.Conditions {
		if c.Type == virtv1.VirtualMachineManualRecoveryRequired && c.Status == corev1.ConditionTrue && c.Message == help.Message {
			return
		}
	}
	r.warning(s.vm, reasonMigrationFailed, "%s", help.Message)
}

// migrationConditions say how the copies of the VM's volumes stand: the first that is not done, and the first that needs help.
func migrationConditions(s *scope) []virtv1.VirtualMachineCondition {
	if s.migration == nil {
		return nil
	}
	var all []virtv1.VirtualMachineCondition
	add := func(kind virtv1.VirtualMachineConditionType, verdict volumemigration.Verdict) {
		all = append(all, virtv1.VirtualMachineCondition{Type: kind, Status: corev1.ConditionTrue, Reason: verdict.Reason, Message: verdict.Message})
	}
	for _, verdict := range s.migration.verdicts {
		if verdict.Act != volumemigration.Done {
			add(conditionVolumes, verdict)
			break
		}
	}
	if help := s.migration.find(volumemigration.Help); help != nil {
		add(virtv1.VirtualMachineManualRecoveryRequired, *help)
	}
	return all
}

// volumeUpdate names the claims of the volumes that are being copied.
func volumeUpdate(s *scope) *virtv1.VolumeUpdateState {
	if s.migration == nil || len(s.migration.infos) == 0 {
		return nil
	}
	return &virtv1.VolumeUpdateState{VolumeMigrationState: &virtv1.VolumeMigrationState{MigratedVolumes: s.migration.infos}}
}

// migrationFailed holds when a volume is not copied before somebody mends something.
func migrationFailed(s *scope) bool {
	return s.migration != nil && s.migration.find(volumemigration.Help) != nil
}

// migrating holds while volumes are being copied.
func migrating(s *scope) bool { return s.migration != nil }
