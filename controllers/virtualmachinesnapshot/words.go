package virtualmachinesnapshot

import (
	"time"

	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
)

// The finalizers: of a snapshot, until its VM is unlocked and its content has gone where it is to go; of a content, as long as it has a
// snapshot; of a VM, while a snapshot of it is taken.
const (
	Finalizer        = "snapshot.kubevirt.io/vmsnapshot-protection"
	FinalizerContent = "snapshot.kubevirt.io/vmsnapshotcontent-protection"
	FinalizerSource  = "snapshot.kubevirt.io/snapshot-source-protection"
)

// Labels of VolumeSnapshots: the VM that they are of.
const (
	labelSourceName      = "snapshot.kubevirt.io/source-vm-name"
	labelSourceNamespace = "snapshot.kubevirt.io/source-vm-namespace"
)

// annotationDefault marks the VolumeSnapshotClass that is taken of a driver's several.
const annotationDefault = "snapshot.storage.kubernetes.io/is-default-class"

// annotationStateLeft on a content is the claim with the state of its VM's TPM or firmware that is not in it, for its storage takes no
// snapshots.
const annotationStateLeft = names.Domain + "state-left-out"

// Kinds, as objects name each other.
const (
	KindMachine = "VirtualMachine"
	kindContent = "VirtualMachineSnapshotContent"
)

// Reasons of events, in the field's words.
const (
	reasonContent        = "SuccessfulVirtualMachineSnapshotContentCreate"
	reasonVolumeSnapshot = "SuccessfulVolumeSnapshotCreate"
	reasonMissing        = "VolumeSnapshotMissing"
	reasonError          = "VirtualMachineSnapshotError"
)

// Words of conditions, in the field's.
const (
	deadlineExceeded = "snapshot deadline exceeded"
	notLocked        = "Source not locked"
	locked           = "Source locked and operation in progress"
	noSource         = "Source does not exist"
	complete         = "Operation complete"
	failed           = "Operation failed"
	inError          = "In error state"
	ready            = "Ready"
	notReady         = "Not ready"
)

// vssLimit is in what the agent of a Windows guest answers when the guest did not stand still for long enough.
const vssLimit = "fsfreeze is limited"

// longestFreeze is how long a guest stands still for a snapshot that may take for ever.
const longestFreeze = 5 * time.Minute

// retry is the time between tries of what no event tells of: that others let go of a stopped VM's claims,
// that an agent that failed can be asked again.
const retry = 5 * time.Second

// indications are what users should know of a snapshot of a running VM, with a sentence.
var indications = map[snapshotv1.Indication]string{
	snapshotv1.VMSnapshotOnlineSnapshotIndication: "The VM was running; how consistent its disks are depends on whether its guest agent made the file systems stand still.",
	snapshotv1.VMSnapshotGuestAgentIndication:     "The guest agent was asked to make the file systems stand still while the disks were taken.",
	snapshotv1.VMSnapshotNoGuestAgentIndication:   "There was no guest agent to make the file systems stand still: the disks are as after a power failure.",
	snapshotv1.VMSnapshotQuiesceTimeoutIndication: "The guest did not let its file systems stand still for long enough: the disks are as after a power failure.",
	snapshotv1.VMSnapshotPausedIndication:         "The VM was paused, so nothing was flushed to its disks: they are as after a power failure.",
}
