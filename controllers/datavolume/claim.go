package datavolume

import (
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/upload"
)

// claimInput is all that a claim is built from.
type claimInput struct {
	DataVolume *cdiv1.DataVolume
	// Class is the StorageClass that the claim will have, nil when it is not known.
	Class *storagev1.StorageClass
	// Profile says what claims of the class should ask for, nil when there is none.
	Profile *cdiv1.StorageProfile
	// Config is what holds for all DataVolumes.
	Config cdiv1.CDIConfigStatus
	// Source is what is cloned, nil when nothing is.
	Source *origin
	// Restored says that the source was made of a snapshot, to be copied.
	Restored bool
	// Strategy is how the class's claims are best cloned, empty when nothing says it; SnapshotClass is for snapshots of them.
	Strategy      cdiv1.CDICloneStrategy
	SnapshotClass string
	// Begun is how the clone was begun.
	Begun manner
	// Prepared is a volume that has the disk already, nil for none. The claim gets its size where none is asked for.
	Prepared *corev1.PersistentVolume
	// Grow says that a claim of spec.storage asks for as much as Source needs, where what is asked for is less.
	Grow bool
	// Labels come from the source: what instance type and preference suit the disk.
	Labels map[string]string
}

// buildClaim returns the claim of a DataVolume.
//
// spec.pvc is taken as it is. spec.storage is completed: with what the class's StorageProfile
// offers where it says nothing (an *unknownModes error when that is not known); a claim for a file
// system is larger than the disk asked for by the overhead that the CDIConfig has for the class.
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
	delete(claim.Labels, keep.LabelFor) // it is the DataVolume that is kept; what is copied from the claim is not
	setAll(&claim.Labels, in.Labels)
	setAll(&claim.Labels, map[string]string{labelApp: labelAppValue})
	for _, name := range []string{annotationLastApplied, AnnotationPodPhase, AnnotationFailure, AnnotationRestarts, AnnotationPreallocated, names.AnnotationDigest, annotationBroughtFrom, AnnotationSnapshotOf, AnnotationCopiedFrom, annotationFallback, upload.AnnotationReady, population.AnnotationUse, population.AnnotationFilledBy, AnnotationPopulatedFor, annotationVolumes, annotationCollected} {
		delete(claim.Annotations, name) // what an earlier claim had reached, this one has not
	}
	setAll(&claim.Annotations, map[string]string{annotationFillingAlert: "disabled", AnnotationContentType: string(contentType(dv))})
	if isUpload(dv) {
		setAll(&claim.Annotations, map[string]string{upload.AnnotationTarget: ""})
	}
	if dv.Spec.PVC != nil {
		claim.Spec = *dv.Spec.PVC.DeepCopy()
	} else {
		var err error
		if claim.Spec, err = fromStorage(in); err != nil {
			return nil, err
		}
	}
	if in.Source != nil {
		if err := cloneFrom(in, claim); err != nil {
			return nil, err
		}
	}
	bindPrepared(in.Prepared, claim)
	size := claim.Spec.Resources.Requests.Storage()
	if size.Sign() <= 0 {
		return nil, fmt.Errorf("no size is given; set resources.requests.storage")
	}
	return claim, nil
}

func fromStorage(in claimInput) (corev1.PersistentVolumeClaimSpec, error) {
	s := in.DataVolume.Spec.Storage.DeepCopy()
	spec := corev1.PersistentVolumeClaimSpec{
		AccessModes: s.AccessModes, Selector: s.Selector, Resources: s.Resources, VolumeName: s.VolumeName,
		StorageClassName: s.StorageClassName, VolumeMode: s.VolumeMode, DataSource: s.DataSource, DataSourceRef: s.DataSourceRef,
	}
	err := complete(&spec, in)
	return spec, err
}

// complete sets in spec, which leaves it to the class's StorageProfile, what it does not say.
func complete(spec *corev1.PersistentVolumeClaimSpec, in claimInput) error {
	if spec.StorageClassName == nil && in.Class != nil {
		spec.StorageClassName = new(in.Class.Name)
	}
	if err := chooseModes(spec, in); err != nil {
		return err
	}
	size := spec.Resources.Requests.Storage()
	if size.Sign() > 0 && volumeMode(*spec) == corev1.PersistentVolumeFilesystem {
		spec.Resources.Requests[corev1.ResourceStorage] = inflate(*size, cdiconfig.Overhead(&in.Config, in.Class))
	}
	return enlarge(spec, in.Profile)
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
	if claim.Spec.VolumeName != "" && source.Key().Namespace != claim.Namespace {
		return errors.New("volumeName is set, but a clone of another namespace brings its volume with it; leave volumeName out")
	}
	claim.Spec.DataSource, claim.Spec.DataSourceRef = nil, nil
	delete(claim.Annotations, annotationSelectedNode) // it lies where its source lies
	delete(claim.Annotations, AnnotationCloneType)
	if claim.Spec.StorageClassName == nil && !in.Restored {
		claim.Spec.StorageClassName = source.class
	}
	if copied, because := copiedWhy(in, claim); copied {
		return copyInto(in, claim, because)
	}
	if source.Key().Namespace == claim.Namespace { // a volume of another namespace is brought ready
		claim.Spec.DataSource = source.reference()
	}
	have, need := claim.Spec.Resources.Requests.Storage(), &source.size
	if have.IsZero() || in.Grow && in.DataVolume.Spec.Storage != nil && have.Cmp(*need) < 0 {
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *need}
	} else if have.Cmp(*need) < 0 {
		return tooSmall(have, need)
	}
	return nil
}

func tooSmall(have, need *resource.Quantity) error {
	return fmt.Errorf("target resources requests storage size is smaller than the source: %s < %s; ask for at least %s", have, need, need)
}

func volumeMode(spec corev1.PersistentVolumeClaimSpec) corev1.PersistentVolumeMode {
	if spec.VolumeMode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *spec.VolumeMode
}

// diskSize is the size in bytes of the disk that the DataVolume asks for, without overhead.
func diskSize(dv *cdiv1.DataVolume) int64 { return sizeAsked(dv).Value() }

// sizeAsked is the size that the DataVolume asks for; zero when it asks for none.
func sizeAsked(dv *cdiv1.DataVolume) *resource.Quantity {
	if dv.Spec.PVC != nil {
		return dv.Spec.PVC.Resources.Requests.Storage()
	}
	return dv.Spec.Storage.Resources.Requests.Storage()
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
