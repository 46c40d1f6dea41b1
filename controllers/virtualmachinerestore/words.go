package virtualmachinerestore

import (
	"time"

	"github.com/slipway-vm/slipway/internal/names"
)

// Finalizer keeps a restore until its VM is unlocked.
const Finalizer = "snapshot.kubevirt.io/vmrestore-protection"

// Annotations and labels, in the field's words.
const (
	// AnnotationName on a claim or DataVolume is the name of the restore that made it.
	AnnotationName = "restore.kubevirt.io/name"
	// AnnotationLast on a VM or claim is the restore that it is from: its name, "-" and its uid.
	AnnotationLast = "restore.kubevirt.io/lastRestoreUID"
	// annotationPopulated on a claim is the DataVolume that it is filled for; annotationPrePopulated says so on the DataVolume.
	annotationPopulated    = "cdi.kubevirt.io/storage.populatedFor"
	annotationPrePopulated = "cdi.kubevirt.io/storage.prePopulated"
	// Labels of a claim: the VM that it was of.
	labelSourceName      = "restore.kubevirt.io/source-vm-name"
	labelSourceNamespace = "restore.kubevirt.io/source-vm-namespace"
)

// annotationState on a claim, with the value "true", says that a restore made it for the state of its VM's TPM or firmware.
const annotationState = names.Domain + "restored-state"

// Reasons of events, in the field's words.
const (
	reasonComplete = "VirtualMachineRestoreComplete"
	reasonError    = "VirtualMachineRestoreError"
	reasonNotReady = "RestoreTargetNotReady"
)

// Words of conditions, in the field's.
const (
	waitingForTarget = "Waiting for target to be ready"
	creatingClaims   = "Creating new PVCs"
	waitingForClaims = "Waiting for new PVCs"
	updatingTarget   = "Updating target spec"
	waitingForUpdate = "Waiting for target update"
	complete         = "Operation complete"
	failed           = "Operation failed"
	targetNotReady   = "Restore target not ready"
	graceExceeded    = "Restore target failed to be ready within 5m0s"
	otherTarget      = "restore source and restore target are different but restore target already exists"
)

// Times between tries of what no event tells of: of what hinders a restore, and of the end of claims that are replaced.
const (
	retry        = 5 * time.Second
	replaceRetry = time.Second
)
