package volumemigration

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/datavolume"
)

// Info is what the VM's status says of a move: its volume and its two claims, of one that does not exist the name only.
func Info(f Facts) virtv1.StorageMigratedVolumeInfo {
	return virtv1.StorageMigratedVolumeInfo{
		VolumeName:         f.Move.Volume,
		SourcePVCInfo:      claimInfo(f.Move.From, f.Source),
		DestinationPVCInfo: claimInfo(f.Move.To, f.Target),
	}
}

func claimInfo(name string, claim *corev1.PersistentVolumeClaim) *virtv1.PersistentVolumeClaimInfo {
	info := &virtv1.PersistentVolumeClaimInfo{ClaimName: name}
	if claim == nil {
		return info
	}
	info.AccessModes = claim.Spec.AccessModes
	info.VolumeMode = new(datavolume.VolumeMode(claim))
	info.Requests, info.Capacity = claim.Spec.Resources.Requests, claim.Status.Capacity
	info.Preallocated = claim.Annotations[datavolume.AnnotationPreallocated] == "true"
	return info
}

// sizeOf is how large claim is, or will be once it is bound.
func sizeOf(claim *corev1.PersistentVolumeClaim) *resource.Quantity {
	if size := claim.Status.Capacity.Storage(); !size.IsZero() {
		return size
	}
	return claim.Spec.Resources.Requests.Storage()
}
