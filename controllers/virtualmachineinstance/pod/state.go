package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
)

// stateSize is the size of a state claim: UEFI's variables take half a MiB, a TPM far less.
const stateSize = "10Mi"

// KeepsState says whether vmi keeps something beside its disks: its TPM's state, or the
// variables of UEFI.
func KeepsState(vmi *virtv1.VirtualMachineInstance) bool {
	domain := &vmi.Spec.Domain
	if hasTPM(vmi) && ptr.Deref(domain.Devices.TPM.Persistent, false) {
		return true
	}
	fw := domain.Firmware
	return fw != nil && fw.Bootloader != nil && fw.Bootloader.EFI != nil && ptr.Deref(fw.Bootloader.EFI.Persistent, false)
}

func hasTPM(vmi *virtv1.VirtualMachineInstance) bool {
	tpm := vmi.Spec.Domain.Devices.TPM
	return tpm != nil && ptr.Deref(tpm.Enabled, true)
}

// StateOwner is whom the state of vmi belongs to, and goes with: its VirtualMachine, or
// the VMI itself when it has none.
func StateOwner(vmi *virtv1.VirtualMachineInstance) metav1.OwnerReference {
	if owner := metav1.GetControllerOf(vmi); owner != nil && owner.Kind == virtv1.VirtualMachineGroupVersionKind.Kind {
		return *owner
	}
	return *metav1.NewControllerRef(vmi, virtv1.VirtualMachineInstanceGroupVersionKind)
}

// StateLabels are those by which the state claim of vmi is found.
func StateLabels(vmi *virtv1.VirtualMachineInstance) map[string]string {
	return map[string]string{names.LabelState: labelValue(vmi.Name)}
}

// StateIn is the claim among claims, which have the labels of a state, that holds that of the VM or VMI whose uid is owner: the
// oldest that does not go, nil for none. A claim without an owner, such as a user brings from a backup, is as good as
// one of its own; one that goes with an earlier VM of the name, or is kept for it, is not its own.
func StateIn(claims []corev1.PersistentVolumeClaim, owner types.UID) *corev1.PersistentVolumeClaim {
	var found *corev1.PersistentVolumeClaim
	for i := range claims {
		if claim := &claims[i]; HoldsState(claim, owner) && older(claim, found) {
			found = claim
		}
	}
	return found
}

// HoldsState says whether claim, which has the labels of a state, may hold that of the VM or VMI whose uid is owner.
func HoldsState(claim *corev1.PersistentVolumeClaim, owner types.UID) bool {
	controller := metav1.GetControllerOf(claim)
	return claim.DeletionTimestamp == nil && !keep.ForAnother(claim, owner) && (controller == nil || controller.UID == owner)
}

// older orders claims by age, then name, so that every pass takes the same.
func older(claim, other *corev1.PersistentVolumeClaim) bool {
	if other == nil || claim.CreationTimestamp.Before(&other.CreationTimestamp) {
		return true
	}
	return claim.CreationTimestamp.Equal(&other.CreationTimestamp) && claim.Name < other.Name
}

// StateClaim returns a new claim for what vmi keeps beside its disks. class is its
// StorageClass; the cluster's default when empty.
func StateClaim(vmi *virtv1.VirtualMachineInstance, class string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    "persistent-state-for-" + vmi.Name + "-",
			Namespace:       vmi.Namespace,
			Labels:          StateLabels(vmi),
			OwnerReferences: []metav1.OwnerReference{StateOwner(vmi)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:  ptr.To(corev1.PersistentVolumeFilesystem),
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(stateSize)}},
		},
	}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	return claim
}

// stateVolumes and stateMounts are the state claim in a pod.
func stateVolumes(in Input) []corev1.Volume {
	if in.State == "" {
		return nil
	}
	return []corev1.Volume{{Name: names.VolumeState, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: in.State},
	}}}
}

func stateMounts(in Input) []corev1.VolumeMount {
	if in.State == "" {
		return nil
	}
	return []corev1.VolumeMount{{Name: names.VolumeState, MountPath: names.LauncherStateDir}}
}
