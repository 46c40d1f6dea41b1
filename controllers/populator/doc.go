// Package populator fills PersistentVolumeClaims whose dataSourceRef names one of CDI's sources, and those that an
// annotation makes the target of an upload.
//
// It does not fill anything itself: it makes a DataVolume, prime-<uid of the claim>, which the claim
// controls. Where the storage waits for populators, the DataVolume has a claim of its own, and once
// that is whole its volume is given to the user's. Where the storage binds the user's claim whatever
// its dataSourceRef says, the DataVolume fills that one, as it does with a target of an upload.
//
// What is decided and reached is noted on the claim. Everything else is computed from what is there
// in every pass, so that one that is cut off between two writes is taken up by the next.
package populator

import "time"

// Annotations of claims, in the field's words.
const (
	annotationRunning       = "cdi.kubevirt.io/storage.condition.running"
	annotationRunningReason = "cdi.kubevirt.io/storage.condition.running.reason"
	annotationPreallocation = "cdi.kubevirt.io/storage.preallocation.requested"
	annotationPriority      = "cdi.kubevirt.io/storage.pod.priorityclassname"
	annotationClonePhase    = "cdi.kubevirt.io/clonePhase"
	annotationCloneType     = "cdi.kubevirt.io/cloneType"

	annotationSelectedNode = "volume.kubernetes.io/selected-node"
	annotationMigratedTo   = "pv.kubernetes.io/migrated-to"
	labelNoBackup          = "velero.io/exclude-from-backup"

	manager        = "populator" // writes what a claim's population has reached
	controllerName = "populator"
	eventAction    = "Populate"
	kindClaim      = "PersistentVolumeClaim"
	kindDataVolume = "DataVolume"
	kindSnapshot   = "VolumeSnapshot"
	valueTrue      = "true"
	phasePending   = "Pending"
	phaseRunning   = "Running"
	phaseSucceeded = "Succeeded"
	phaseFailed    = "Failed"
	progressDone   = "100.0%"
	// progressUnknown is that of an upload of which nothing has come.
	progressUnknown = "N/A"
)

// Reasons of events and of what a claim waits for, in the field's words where it has some.
const (
	reasonCreated     = "CreatedPVCPrimeSuccessfully"
	reasonNotCreated  = "ErrCreatingPVCPrime"
	reasonImported    = "importSucceeded"
	reasonNotImported = "importFailed"
	reasonUploaded    = "UploadSucceeded"
	reasonNotUploaded = "UploadFailed"
	reasonCloned      = "CloneSucceeded"
	reasonNotCloned   = "CloneFailed"
	reasonPending     = "Pending"
	reasonUnsupported = "NotSupported"
	reasonExists      = "ErrResourceExists"
	reasonOverlooked  = "NotPopulated"
	reasonWithdrawn   = "UploadWithdrawn"
	reasonError       = "Error"
	reasonCompleted   = "Completed"
)

// Phases of a clone, as the field writes them onto the claim.
const (
	clonePending   = "Pending"
	cloneVolume    = "CSIClone"
	cloneTaking    = "Snapshot"
	cloneSnapshot  = "SnapshotClone"
	cloneHost      = "HostClone"
	cloneError     = "Error"
	cloneSucceeded = "Succeeded"
)

// staleRetry is how long the cache is given to catch up, refusedRetry when that is tried again which
// was refused: a quota may have room by then.
const (
	staleRetry   = time.Second
	refusedRetry = 10 * time.Second
)
