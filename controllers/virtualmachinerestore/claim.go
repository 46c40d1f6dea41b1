package virtualmachinerestore

import (
	"maps"
	"strings"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
)

// newClaim makes the claim of one volume: as it was when the snapshot was taken, and as large as size at least. It is nobody's state yet.
func newClaim(restore *snapshotv1.VirtualMachineRestore, content *snapshotv1.VirtualMachineSnapshotContent, one snapshotv1.VolumeRestore, size *resource.Quantity) *corev1.PersistentVolumeClaim {
	was := backupOf(content, one.VolumeName).PersistentVolumeClaim.DeepCopy()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: restore.Namespace, Name: one.PersistentVolumeClaimName,
			Labels: maps.Clone(was.Labels), Annotations: kept(was.Annotations),
		},
		Spec: was.Spec,
	}
	maps.DeleteFunc(claim.Labels, func(key, _ string) bool { return strings.HasPrefix(key, names.Domain) }) // whom the old one was kept for, say
	delete(claim.Labels, names.LabelState)
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	if override := overrideOf(restore, one.VolumeName); override != nil {
		maps.Copy(claim.Labels, override.Labels)
		maps.Copy(claim.Annotations, override.Annotations)
	}
	claim.Labels[labelSourceName] = content.Spec.Source.VirtualMachine.Name
	claim.Labels[labelSourceNamespace] = content.Spec.Source.VirtualMachine.Namespace
	claim.Annotations[AnnotationName], claim.Annotations[AnnotationLast] = restore.Name, mark(restore)
	if one.DataVolumeName != nil { // which takes it over as filled
		claim.Annotations[annotationPopulated] = *one.DataVolumeName
		claim.Annotations[datavolume.AnnotationAdopt] = "true"
		claim.Annotations[datavolume.AnnotationPodPhase] = string(corev1.PodSucceeded)
	}
	claim.Spec.VolumeName, claim.Spec.DataSourceRef, claim.Spec.Selector = "", nil, nil
	claim.Spec.DataSource = volumeSnapshot(one)
	if size != nil && size.Cmp(*claim.Spec.Resources.Requests.Storage()) > 0 {
		claim.Spec.Resources.Requests = maps.Clone(claim.Spec.Resources.Requests)
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = *size
	}
	return claim
}

func volumeSnapshot(one snapshotv1.VolumeRestore) *corev1.TypedLocalObjectReference {
	return &corev1.TypedLocalObjectReference{APIGroup: new(csiv1.GroupName), Kind: "VolumeSnapshot", Name: one.VolumeSnapshotName}
}

// newDataVolume makes the DataVolume of a template of vm, which takes over the claim that is filled already. It says from what
// that was, and how large the claim is: a template of a clone need not.
func newDataVolume(restore *snapshotv1.VirtualMachineRestore, vm *virtv1.VirtualMachine, template *virtv1.DataVolumeTemplateSpec, one snapshotv1.VolumeRestore, size resource.Quantity) *cdiv1.DataVolume {
	template = template.DeepCopy()
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: template.Name, Labels: template.Labels, Annotations: template.Annotations,
		},
		Spec: template.Spec,
	}
	keep.Give(dv, vm)
	if dv.Labels == nil {
		dv.Labels = map[string]string{}
	}
	if dv.Annotations == nil {
		dv.Annotations = map[string]string{}
	}
	dv.Labels[virtv1.CreatedByLabel] = string(vm.UID)
	dv.Annotations[AnnotationName], dv.Annotations[annotationPrePopulated] = restore.Name, "true"
	dv.Spec.Source, dv.Spec.SourceRef = nil, nil
	switch {
	case dv.Spec.PVC != nil:
		dv.Spec.PVC.DataSource, dv.Spec.PVC.DataSourceRef = volumeSnapshot(one), nil
		dv.Spec.PVC.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	case dv.Spec.Storage != nil:
		dv.Spec.Storage.DataSource, dv.Spec.Storage.DataSourceRef = volumeSnapshot(one), nil
		dv.Spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	}
	return dv
}
