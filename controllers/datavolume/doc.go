// Package datavolume fills PersistentVolumeClaims as DataVolumes ask: from a web server, a bucket or a registry,
// with what a user sends, with zeros, or with a copy of another claim's disk through one pod; or as a clone of
// another claim or of a snapshot through its CSI driver.
//
// What was reached is recorded on the claim (AnnotationPodPhase and its neighbours), so
// that a controller that starts anew knows what its predecessor did. The DataVolume's
// status is computed from the claim and the pod in every pass, and read by nobody here.
package datavolume

import (
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Annotations of the field on DataVolumes and claims.
const (
	// AnnotationPodPhase on a claim is Succeeded or Failed when its filling has ended; while an image is awaited, Pending
	// or Running.
	AnnotationPodPhase = "cdi.kubevirt.io/storage.pod.phase"
	// AnnotationRestarts on a claim is how often the importer was restarted.
	AnnotationRestarts = "cdi.kubevirt.io/storage.pod.restarts"
	// AnnotationFailure on a claim says why its filling has failed for good.
	AnnotationFailure = "cdi.kubevirt.io/storage.condition.running.message"
	// AnnotationPreallocated on a claim says that its disk was written with all of its size reserved, and that its guest
	// is to give nothing of that back.
	AnnotationPreallocated = "cdi.kubevirt.io/storage.preallocation"
	// AnnotationRetain on a DataVolume keeps the importer pod after it is done.
	AnnotationRetain = "cdi.kubevirt.io/storage.pod.retainAfterCompletion"
	// AnnotationAdopt on a claim or DataVolume allows the DataVolume to take over a claim that holds its disk already.
	AnnotationAdopt = "cdi.kubevirt.io/allowClaimAdoption"
	// AnnotationContentType on a claim says what is in it.
	AnnotationContentType = "cdi.kubevirt.io/storage.contentType"

	annotationRunning       = "cdi.kubevirt.io/storage.condition.running"
	annotationRunningReason = "cdi.kubevirt.io/storage.condition.running.reason"
	annotationSelectedNode  = "volume.kubernetes.io/selected-node"
	annotationLastApplied   = "kubectl.kubernetes.io/last-applied-configuration"
	annotationFillingAlert  = "alerts.k8s.io/KubePersistentVolumeFillingUp"
	labelApp                = "app"
	labelAppValue           = "containerized-data-importer"
	labelPodKind            = "cdi.kubevirt.io"
	managerImporter         = "importer" // writes what an import has reached
	phaseSucceeded          = "Succeeded"
	phaseFailed             = "Failed"
	valueTrue               = "true"
	progressUnknown         = cdiv1.DataVolumeProgress("N/A")
	progressDone            = cdiv1.DataVolumeProgress("100.0%")
	kindDataVolume          = "DataVolume"
	kindClaim               = "PersistentVolumeClaim"
	controllerName          = "datavolume"
	eventAction             = "Reconcile"
)

// Reasons of events and conditions, in the field's words.
const (
	reasonBound           = "Bound"
	reasonPending         = "Pending"
	reasonClaimLost       = "ClaimLost"
	reasonNotFound        = "NotFound"
	reasonTransferRunning = "TransferRunning"
	reasonCompleted       = "Completed"
	reasonPodRunning      = "Pod is running"
	reasonCreating        = "ContainerCreating"
	reasonUnschedulable   = "Unschedulable"
	reasonError           = "Error"
	reasonExists          = "ErrResourceExists"
	reasonExceededQuota   = "ErrExceededQuota"
	reasonClaimNotValid   = "ErrClaimNotValid"
	reasonUnsupported     = "NotSupported"
	reasonInvalidClone    = "CloneValidationFailed"
	reasonSourceMissing   = "CloneSourceNotFound"
	reasonSourceUnready   = "CloneSourceNotReady"
	reasonCloning         = "CloneInProgress"
	reasonUnauthorized    = "CloneNotAuthorized"
	reasonSourceInUse     = "CloneSourceInUse"
)
