package datavolume

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/upload"
)

// claimInput is all that a claim is built from.
type claimInput struct {
	DataVolume *cdiv1.DataVolume
	// Class is the StorageClass that the claim will have, nil when it is not known.
	Class *storagev1.StorageClass
	// Source is the claim to clone, nil when nothing is cloned.
	Source *corev1.PersistentVolumeClaim
	// Labels come from the source: what instance type and preference suit the disk.
	Labels map[string]string
}

// buildClaim returns the claim of a DataVolume.
//
// spec.pvc is taken as it is. spec.storage is completed: ReadWriteOnce and Filesystem where
// it says nothing; a claim for a file system is larger than the disk asked for by the
// overhead of a file system (6 %), except on Slipway's own node storage, whose volumes are directories.
func buildClaim(in claimInput) (*corev1.PersistentVolumeClaim, error) {
	dv := in.DataVolume
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: dv.Name, Namespace: dv.Namespace,
			Labels:          maps.Clone(dv.Labels),
			Annotations:     maps.Clone(dv.Annotations),
			OwnerReferences: []metav1.OwnerReference{owner(dv)},
		},
	}
	setAll(&claim.Labels, in.Labels)
	setAll(&claim.Labels, map[string]string{labelApp: labelAppValue})
	for _, name := range []string{annotationLastApplied, AnnotationPodPhase, AnnotationFailure, AnnotationRestarts, names.AnnotationDigest, annotationBroughtFrom, upload.AnnotationReady} {
		delete(claim.Annotations, name) // what an earlier claim had reached, this one has not
	}
	setAll(&claim.Annotations, map[string]string{annotationFillingAlert: "disabled", AnnotationContentType: string(cdiv1.DataVolumeKubeVirt)})
	if isUpload(dv) {
		setAll(&claim.Annotations, map[string]string{upload.AnnotationTarget: ""})
	}
	if dv.Spec.PVC != nil {
		claim.Spec = *dv.Spec.PVC.DeepCopy()
	} else {
		claim.Spec = fromStorage(in)
	}
	if in.Source != nil {
		if err := cloneFrom(in, claim); err != nil {
			return nil, err
		}
	}
	size := claim.Spec.Resources.Requests.Storage()
	if size.Sign() <= 0 {
		return nil, fmt.Errorf("no size is given; set resources.requests.storage")
	}
	return claim, nil
}

func fromStorage(in claimInput) corev1.PersistentVolumeClaimSpec {
	s := in.DataVolume.Spec.Storage.DeepCopy()
	spec := corev1.PersistentVolumeClaimSpec{
		AccessModes: s.AccessModes, Selector: s.Selector, Resources: s.Resources, VolumeName: s.VolumeName,
		StorageClassName: s.StorageClassName, VolumeMode: s.VolumeMode, DataSource: s.DataSource, DataSourceRef: s.DataSourceRef,
	}
	if spec.StorageClassName == nil && in.Class != nil {
		spec.StorageClassName = new(in.Class.Name)
	}
	if spec.VolumeMode == nil || *spec.VolumeMode == cdiv1.PersistentVolumeFromStorageProfile {
		spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
		if in.Source != nil && in.Source.Spec.VolumeMode != nil {
			spec.VolumeMode = new(*in.Source.Spec.VolumeMode)
		}
	}
	if len(spec.AccessModes) == 0 {
		spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	size := spec.Resources.Requests.Storage()
	if size.Sign() > 0 && *spec.VolumeMode == corev1.PersistentVolumeFilesystem {
		spec.Resources.Requests[corev1.ResourceStorage] = inflate(*size, overhead(in.Class))
	}
	return spec
}

// overhead is the part of a file system's size that files cannot have.
func overhead(class *storagev1.StorageClass) float64 {
	if class != nil && class.Provisioner == names.HostPathDriver {
		return 0
	}
	return defaultOverhead
}

// inflate returns the size of a file system that holds a file of size bytes, in whole MiB.
func inflate(size resource.Quantity, overhead float64) resource.Quantity {
	if overhead == 0 {
		return size
	}
	const mebibyte = 1 << 20
	bytes := int64(float64(size.Value()) / (1 - overhead))
	return *resource.NewQuantity((bytes+mebibyte-1)/mebibyte*mebibyte, resource.BinarySI)
}

// cloneFrom makes claim a clone of in.Source. Where no size is given, it is the source's.
func cloneFrom(in claimInput, claim *corev1.PersistentVolumeClaim) error {
	source := in.Source
	if a, b := volumeMode(source.Spec), volumeMode(claim.Spec); a != b {
		return fmt.Errorf("the source's volumeMode is %s, this one's %s; make them equal", a, b)
	}
	if a, b := source.Spec.StorageClassName, claim.Spec.StorageClassName; a != nil && b != nil && *a != *b {
		return fmt.Errorf("the source's storage class is %s, this one's %s; cloning works within one class: name the source's", *a, *b)
	}
	claim.Spec.DataSource, claim.Spec.DataSourceRef = nil, nil
	if source.Namespace == claim.Namespace { // a volume of another namespace is brought ready
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kindClaim, Name: source.Name}
	}
	if claim.Spec.StorageClassName == nil {
		claim.Spec.StorageClassName = source.Spec.StorageClassName
	}
	have := claim.Spec.Resources.Requests.Storage()
	need := source.Status.Capacity.Storage()
	if need.IsZero() {
		need = source.Spec.Resources.Requests.Storage()
	}
	if have.IsZero() {
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *need}
	} else if have.Cmp(*need) < 0 {
		return fmt.Errorf("target resources requests storage size is smaller than the source: %s < %s; ask for at least %s", have, need, need)
	}
	return nil
}

func volumeMode(spec corev1.PersistentVolumeClaimSpec) corev1.PersistentVolumeMode {
	if spec.VolumeMode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *spec.VolumeMode
}

// diskSize is the size in bytes of the disk that the DataVolume asks for, without overhead.
func diskSize(dv *cdiv1.DataVolume) int64 {
	if dv.Spec.PVC != nil {
		return dv.Spec.PVC.Resources.Requests.Storage().Value()
	}
	return dv.Spec.Storage.Resources.Requests.Storage().Value()
}

func owner(dv *cdiv1.DataVolume) metav1.OwnerReference {
	return *metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind(kindDataVolume))
}

func setAll(to *map[string]string, from map[string]string) {
	if *to == nil {
		*to = map[string]string{}
	}
	maps.Copy(*to, from)
}
