// Package populator validates, at admission, the sources that claims are filled from.
package populator

import (
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/admission/datavolume"
)

const (
	kindClaim    = "PersistentVolumeClaim"
	kindSnapshot = "VolumeSnapshot"
)

// Import returns what is wrong with a new VolumeImportSource.
func Import(source *cdiv1.VolumeImportSource) field.ErrorList {
	spec, path := &source.Spec, field.NewPath("spec")
	if spec.Source == nil {
		return field.ErrorList{field.Required(path.Child("source"), "Missing VolumeImport source; set http, s3, gcs, registry or blank")}
	}
	from := cdiv1.DataVolumeSource{
		HTTP: spec.Source.HTTP, S3: spec.Source.S3, GCS: spec.Source.GCS, Registry: spec.Source.Registry,
		Blank: spec.Source.Blank, Imageio: spec.Source.Imageio, VDDK: spec.Source.VDDK,
	}
	return datavolume.ValidateSource(&cdiv1.DataVolumeSpec{Source: &from, ContentType: spec.ContentType, Preallocation: spec.Preallocation}, path)
}

// Upload returns what is wrong with a new VolumeUploadSource.
func Upload(source *cdiv1.VolumeUploadSource) field.ErrorList {
	from := cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
	return datavolume.ValidateSource(&cdiv1.DataVolumeSpec{Source: &from, ContentType: source.Spec.ContentType, Preallocation: source.Spec.Preallocation}, field.NewPath("spec"))
}

// Clone returns what is wrong with a new VolumeCloneSource.
func Clone(source *cdiv1.VolumeCloneSource) field.ErrorList {
	from, path := source.Spec.Source, field.NewPath("spec", "source")
	var errs field.ErrorList
	if from.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "name the claim or VolumeSnapshot to clone"))
	}
	group := ptr.Deref(from.APIGroup, "")
	switch from.Kind {
	case kindClaim:
		if group != "" {
			errs = append(errs, field.Invalid(path.Child("apiGroup"), group, "a PersistentVolumeClaim has none; remove it"))
		}
	case kindSnapshot:
		if group != snapshotv1.GroupName {
			errs = append(errs, field.NotSupported(path.Child("apiGroup"), group, []string{snapshotv1.GroupName}))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("kind"), from.Kind, []string{kindClaim, kindSnapshot}))
	}
	return errs
}

// Unchanged refuses that a source of kind gets another spec: claims may have been filled from it.
func Unchanged(kind string, before, after any) field.ErrorList {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), fmt.Sprintf("Cannot update %s Spec; create another, and let new claims name that", kind))}
}
