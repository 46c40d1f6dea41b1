package virtualmachineclone

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
)

// Reasons of events, in the field's words but for the failures of a snapshot or restore, and for others' objects, for which it has none.
const (
	reasonSnapshotCreated = "SnapshotCreated"
	reasonSnapshotReady   = "SnapshotReady"
	reasonRestoreCreated  = "RestoreCreated"
	reasonRestoreReady    = "RestoreReady"
	reasonTargetCreated   = "TargetVMCreated"
	reasonBound           = "PVCBound"
	reasonNoSource        = "SourceDoesNotExist"
	reasonKeepsState      = "SourceVMWithBackendStorageInvalid"
	reasonVolumes         = "VMVolumeSnapshotsInvalid"
	reasonSnapshotDeleted = "SnapshotDeleted"
	reasonSnapshotFailed  = "SnapshotFailed"
	reasonContent         = "SnapshotContentInvalid"
	reasonRestoreNotMade  = "RestoreCreationFailed"
	reasonRestoreFailed   = "RestoreFailed"
	reasonForeign         = "NameTaken"
)

// Words of conditions, in the field's.
const (
	processing = "Still processing"
	pending    = "Pending"
	failed     = "Failed"
	ready      = "Ready"
)

// kindSnapshot is a source that is no VM.
const kindSnapshot = "VirtualMachineSnapshot"

// kindMachine is a source, and what a clone makes.
var kindMachine = virtv1.VirtualMachineGroupVersionKind.Kind

// retry is the time between tries of what no event tells of.
const retry = 5 * time.Second

// Names of what a clone makes, in the field's words.
const (
	snapshotPrefix = "tmp-snapshot-"
	restorePrefix  = "tmp-restore-"
)

func restoreName(clone types.UID) string { return restorePrefix + string(clone) }

func keepsState(what string) string {
	return fmt.Sprintf("Clone of source with backendstorage is not supported: %s; to have the state of its TPM or firmware in a second VM, restore a VirtualMachineSnapshot to a target that does not exist", what)
}
