package virtualmachineinstance

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
)

// Reasons of events, in the field's words.
const (
	reasonCreate       = "SuccessfulCreate"
	reasonCreateFailed = "FailedCreate"
	reasonDelete       = "SuccessfulDelete"
	reasonDeleteFailed = "FailedDelete"
)

// Reasons of conditions by which others know what a VMI waits for.
const (
	ReasonUnschedulable    = "Unschedulable"        // PodScheduled: no node takes the pod
	ReasonPVCNotFound      = "FailedPvcNotFound"    // Synchronized: a claim or DataVolume does not exist
	ReasonImportFailed     = "DataVolumeFailed"     // Synchronized: a disk could not be filled
	ReasonUnbound          = "PVCNotBound"          // Synchronized or Provisioning: a claim has no volume
	ReasonClaimInUse       = "PVCInUse"             // Synchronized: another VMI uses a claim
	ReasonClaimIsBlock     = "PVCIsBlock"           // Synchronized: a claim is a block device, and the guest is to mount it
	ReasonErrImagePull     = "ErrImagePull"         // Synchronized: an image cannot be pulled
	ReasonImagePullBackOff = "ImagePullBackOff"     // Synchronized: it will be tried again
	ReasonFailedMount      = "FailedMount"          // Synchronized: a volume of the pod, such as a ConfigMap, cannot be mounted
	ReasonImporting        = "ImportInProgress"     // Provisioning: a disk is being filled
	ReasonBinding          = "WaitForFirstConsumer" // Provisioning: a disk waits for a node to be chosen
)

// Reasons that only people read.
const (
	reasonPulling      = "PullingImage"
	reasonWaiting      = "WaitingForContainers"
	reasonUnresponsive = "NodeUnresponsive"
	reasonDiskFailed   = "ContainerDiskFailed"
	reasonEvicted      = "Evicted"
	reasonOOM          = "OOMKilled"
	reasonPodFailed    = "PodFailed"
	reasonPodDeleted   = "PodDeleted"
)

func (r *Reconciler) normal(vmi *virtv1.VirtualMachineInstance, pod *corev1.Pod, reason, format string, args ...any) {
	r.events.Eventf(vmi, related(pod), corev1.EventTypeNormal, reason, "Reconcile", format, args...)
}

func (r *Reconciler) warning(vmi *virtv1.VirtualMachineInstance, pod *corev1.Pod, reason, format string, args ...any) {
	r.events.Eventf(vmi, related(pod), corev1.EventTypeWarning, reason, "Reconcile", format, args...)
}

// related is pod as an event's second object, or none.
func related(pod *corev1.Pod) runtime.Object {
	if pod == nil || pod.UID == "" {
		return nil
	}
	return pod
}
