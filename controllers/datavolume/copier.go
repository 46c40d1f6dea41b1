package datavolume

import (
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// What follows is for the copies that are made for others than DataVolumes, by pods of the same program.

// LastResult is what the last run of the importer in pod left that has ended, nil when none has.
func LastResult(pod *corev1.Pod) *transfer.Result { return lastResult(pod) }

// FailureText is what a user reads of a copy that failed.
func FailureText(result transfer.Result) string { return failureText(result) }

// PodResources is what a pod that copies asks for and may have.
func PodResources(config cdiv1.CDIConfigStatus) corev1.ResourceRequirements {
	return podResources(config)
}

// MayWrite reports whether a container of pod has the claim of the name otherwise than to read it.
func MayWrite(pod *corev1.Pod, claim string) bool { return mayWrite(pod, claim) }

// Overlaps reports whether pod was there while copier was, or is there when copier is nil.
func Overlaps(pod, copier *corev1.Pod) bool { return overlaps(pod, copier) }

// Has reports whether pod has the claim of the name.
func Has(pod *corev1.Pod, claim string) bool { return has(pod, claim) }

// AddCopySource gives container of pod the claim from, to read it, and tells it to copy the disk there.
func AddCopySource(from *corev1.PersistentVolumeClaim, pod *corev1.Pod, container *corev1.Container) {
	addCopySource(from, pod, container)
}

// AddCopyTarget gives container of pod the claim to, and tells it to write the disk there.
func AddCopyTarget(to *corev1.PersistentVolumeClaim, pod *corev1.Pod, container *corev1.Container) {
	addVolume(pod, volumeData, corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: to.Name},
	})
	if volumeMode(to.Spec) == corev1.PersistentVolumeBlock {
		container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: volumeData, DevicePath: blockDevice})
		container.Args = append(container.Args, "--target="+blockDevice)
		return
	}
	mount(container, volumeData, dataDir, false)
	container.Args = append(container.Args, "--target="+dataDir+"/"+names.DiskFile)
}

// ReadOnly reports whether claim can only be read.
func ReadOnly(claim *corev1.PersistentVolumeClaim) bool { return readOnly(claim) }

// VolumeMode is claim's, which is Filesystem where it names none.
func VolumeMode(claim *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	return volumeMode(claim.Spec)
}
