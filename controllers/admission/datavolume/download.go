package datavolume

import (
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// address checks the URL of an object in a bucket: of one of schemes, with a host and a path,
// and without what a Secret is for.
func address(text string, at *field.Path, example string, schemes ...string) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(at, "source URL is empty")}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme):
		return field.ErrorList{field.Invalid(at, text, "Invalid source URL; write "+example)}
	case strings.Trim(u.Path, "/") == "" || strings.HasSuffix(u.Path, "/"):
		return field.ErrorList{field.Invalid(at, text, "the URL names no object; write "+example)}
	case u.Fragment != "", u.Scheme == "gs" && u.RawQuery != "":
		return field.ErrorList{field.Invalid(at, text, "write %23 for a # in the object's name, and %3F for a ?")}
	case u.User != nil:
		return field.ErrorList{field.Invalid(at, u.Redacted(), "the URL has credentials in it; put them into the Secret of secretRef")}
	}
	return nil
}

// archive checks a DataVolume whose source is an archive of files: it comes from a server, or is sent, and
// is unpacked into a file system.
func archive(spec *cdiv1.DataVolumeSpec, path *field.Path) field.ErrorList {
	if spec.ContentType != cdiv1.DataVolumeArchive {
		return nil
	}
	var errs field.ErrorList
	at := path.Child("contentType")
	if s := spec.Source; s == nil || s.HTTP == nil && s.S3 == nil && s.GCS == nil && s.Upload == nil {
		errs = append(errs, field.Invalid(at, spec.ContentType, "archives come from source http, s3, gcs or upload; use one of them"))
	}
	block := field.NotSupported(path.Child("storage", "volumeMode"), corev1.PersistentVolumeBlock, []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem})
	if s := spec.Storage; s != nil && ptr.Deref(s.VolumeMode, "") == corev1.PersistentVolumeBlock {
		errs = append(errs, block)
	}
	if p := spec.PVC; p != nil && ptr.Deref(p.VolumeMode, "") == corev1.PersistentVolumeBlock {
		block.Field = path.Child("pvc", "volumeMode").String()
		errs = append(errs, block)
	}
	if ptr.Deref(spec.Preallocation, false) {
		errs = append(errs, field.Forbidden(path.Child("preallocation"), "preallocation is for disks, not for contentType archive; remove it"))
	}
	return errs
}
