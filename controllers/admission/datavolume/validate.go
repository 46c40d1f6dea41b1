// Package datavolume validates DataVolumes at admission.
package datavolume

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// Validate returns what is wrong with a DataVolume's spec; path is where it is.
func Validate(spec *cdiv1.DataVolumeSpec, path *field.Path) field.ErrorList {
	return append(target(spec, path), ValidateSource(spec, path)...)
}

// ValidateSource returns what is wrong with where the disk comes from, whatever claim it is for.
func ValidateSource(spec *cdiv1.DataVolumeSpec, path *field.Path) field.ErrorList {
	return append(source(spec, path), archive(spec, path)...)
}

// ValidateUpdate returns what is wrong with changing before into after.
func ValidateUpdate(before, after *cdiv1.DataVolume) field.ErrorList {
	var errs field.ErrorList
	if !reflect.DeepEqual(before.Spec, after.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "Cannot update DataVolume Spec; delete the DataVolume and create another"))
	}
	if mark := clonesource.AnnotationAuthorized; before.Annotations[mark] != after.Annotations[mark] {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(mark), "only admission writes what a DataVolume may clone, when it is created"))
	}
	if limited(&before.ObjectMeta) == limited(&after.ObjectMeta) {
		return errs
	}
	return append(errs, limit(&after.ObjectMeta, &after.Spec, nil)...)
}

// ValidateNew returns what is wrong with a DataVolume that is created, or with a template of one; at is where it is.
func ValidateNew(meta *metav1.ObjectMeta, spec *cdiv1.DataVolumeSpec, at *field.Path) field.ErrorList {
	return append(Validate(spec, at.Child("spec")), limit(meta, spec, at)...)
}

func limited(meta *metav1.ObjectMeta) string { return meta.Annotations[names.AnnotationBandwidth] }

// limit checks how much may be downloaded in a second.
func limit(meta *metav1.ObjectMeta, spec *cdiv1.DataVolumeSpec, at *field.Path) field.ErrorList {
	asked, source := limited(meta), spec.Source
	if asked == "" {
		return nil
	}
	at = at.Child("metadata", "annotations").Key(names.AnnotationBandwidth)
	if source == nil || source.HTTP == nil && source.S3 == nil && source.GCS == nil && source.Registry == nil {
		return field.ErrorList{field.Forbidden(at, "only what is downloaded has a limit, from http, s3, gcs or a registry; remove the annotation")}
	}
	if source.Registry != nil && PulledByNode(source.Registry) {
		return field.ErrorList{field.Forbidden(at, "with pullMethod node the kubelet pulls the image, and is not slowed; remove the annotation, or use pullMethod pod")}
	}
	if _, err := transfer.ParseBandwidth(asked); err != nil {
		return field.ErrorList{field.Invalid(at, asked, err.Error())}
	}
	return nil
}

func target(spec *cdiv1.DataVolumeSpec, path *field.Path) field.ErrorList {
	switch {
	case spec.PVC == nil && spec.Storage == nil:
		return field.ErrorList{field.Required(path.Child("storage"), "Missing Data volume PVC; set storage or pvc")}
	case spec.PVC != nil && spec.Storage != nil:
		return field.ErrorList{field.Invalid(path.Child("pvc"), "", "Duplicate storage definition, both target storage and target pvc defined")}
	case spec.PVC != nil:
		errs := size(spec, spec.PVC.Resources, path.Child("pvc", "resources"))
		if len(spec.PVC.AccessModes) == 0 {
			errs = append(errs, field.Required(path.Child("pvc", "accessModes"), "Required value: at least 1 access mode is required"))
		}
		return errs
	}
	return size(spec, spec.Storage.Resources, path.Child("storage", "resources"))
}

// size checks how large the claim is to be; a clone may leave that to its source.
func size(spec *cdiv1.DataVolumeSpec, resources corev1.VolumeResourceRequirements, path *field.Path) field.ErrorList {
	request, isSet := resources.Requests[corev1.ResourceStorage]
	at := path.Child("requests", string(corev1.ResourceStorage))
	clone := spec.SourceRef != nil || spec.Source != nil && (spec.Source.PVC != nil || spec.Source.Snapshot != nil)
	switch {
	case !isSet && !clone:
		return field.ErrorList{field.Required(at, "PVC size is missing")}
	case isSet && request.Sign() <= 0:
		return field.ErrorList{field.Invalid(at, request.String(), "PVC size can't be equal or less than zero")}
	}
	return nil
}

func source(spec *cdiv1.DataVolumeSpec, path *field.Path) field.ErrorList {
	at := path.Child("source")
	switch {
	case spec.Source != nil && spec.SourceRef != nil:
		return field.ErrorList{field.Invalid(at, "", "Either Source or SourceRef should be set, not both")}
	case spec.SourceRef != nil:
		return sourceRef(spec.SourceRef, path.Child("sourceRef"))
	case spec.Source == nil:
		if external(spec) {
			return nil
		}
		return field.ErrorList{field.Required(at, "Data volume should have either Source or SourceRef, or be externally populated")}
	}
	if set := sources(spec.Source); set != 1 {
		return field.ErrorList{field.Invalid(at, set, "set exactly one source")}
	}
	switch {
	case spec.Source.HTTP != nil:
		return http(spec.Source.HTTP, at.Child("http"))
	case spec.Source.Registry != nil:
		return registry(spec.Source.Registry, at.Child("registry"))
	case spec.Source.S3 != nil:
		return address(spec.Source.S3.URL, at.Child("s3", "url"), "https://host/bucket/object", "http", "https")
	case spec.Source.GCS != nil:
		return address(spec.Source.GCS.URL, at.Child("gcs", "url"), "gs://bucket/object", "gs", "http", "https")
	case spec.Source.PVC != nil:
		return clone(spec.Source.PVC.Name, at.Child("pvc"), "name the claim to clone")
	case spec.Source.Snapshot != nil:
		return clone(spec.Source.Snapshot.Name, at.Child("snapshot"), "name the VolumeSnapshot to clone")
	}
	return nil
}

func external(spec *cdiv1.DataVolumeSpec) bool {
	if spec.PVC != nil {
		return spec.PVC.DataSource != nil || spec.PVC.DataSourceRef != nil
	}
	return spec.Storage != nil && (spec.Storage.DataSource != nil || spec.Storage.DataSourceRef != nil)
}

func sources(source *cdiv1.DataVolumeSource) int {
	n := 0
	for _, value := range reflect.ValueOf(*source).Fields() {
		if !value.IsNil() {
			n++
		}
	}
	return n
}

func sourceRef(ref *cdiv1.DataVolumeSourceRef, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.Kind != cdiv1.DataVolumeDataSource {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, []string{cdiv1.DataVolumeDataSource}))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "name the DataSource"))
	}
	return errs
}

func clone(name string, at *field.Path, advice string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at.Child("name"), advice)}
	}
	return nil
}

// checksums are the hashes that a checksum may name, with the hexadecimal digits of each.
var checksums = map[string]int{"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}

func http(source *cdiv1.DataVolumeSourceHTTP, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if source.URL == "" {
		errs = append(errs, field.Required(at.Child("url"), "source URL is empty"))
	} else if u, err := url.Parse(source.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		errs = append(errs, field.Invalid(at.Child("url"), source.URL, "Invalid source URL; write http://host/path or https://host/path"))
	}
	if source.Checksum != "" {
		hash, digits, _ := strings.Cut(source.Checksum, ":")
		want, known := checksums[strings.ToLower(hash)]
		if !known || len(digits) != want || strings.Trim(strings.ToLower(digits), "0123456789abcdef") != "" {
			errs = append(errs, field.Invalid(at.Child("checksum"), source.Checksum, "write it as sha256:<64 hexadecimal digits>, or with md5, sha1 or sha512"))
		}
	}
	for i, header := range source.ExtraHeaders {
		if !strings.Contains(header, ":") {
			errs = append(errs, field.Invalid(at.Child("extraHeaders").Index(i), "…", fmt.Sprintf("%s is not a header; write Name: value", at.Child("extraHeaders").Index(i))))
		}
	}
	return errs
}
