// Package objecttransfer validates ObjectTransfers at admission.
package objecttransfer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/objecttransfer"
)

// versions are the API versions of the kinds that are moved.
var versions = map[string]string{"DataVolume": "cdi.kubevirt.io/v1beta1", "PersistentVolumeClaim": "v1"}

// Validate returns what is wrong with a new transfer's spec, which is at path.
func Validate(spec *cdiv1.ObjectTransferSpec, path *field.Path) field.ErrorList {
	source, target := path.Child("source"), path.Child("target")
	var errs field.ErrorList
	version, known := versions[spec.Source.Kind]
	if !known {
		errs = append(errs, field.Invalid(source.Child("kind"), spec.Source.Kind, fmt.Sprintf("Unsupported kind %q; write DataVolume or PersistentVolumeClaim", spec.Source.Kind)))
	}
	if got := spec.Source.APIVersion; known && got != "" && got != version {
		errs = append(errs, field.Invalid(source.Child("apiVersion"), got, fmt.Sprintf("a %s is of %s; write that, or leave it out", spec.Source.Kind, version)))
	}
	errs = append(errs, name(spec.Source.Namespace, source.Child("namespace"), validation.IsDNS1123Label)...)
	errs = append(errs, name(spec.Source.Name, source.Child("name"), validation.IsDNS1123Subdomain)...)
	if spec.Target.Namespace == nil && spec.Target.Name == nil {
		return append(errs, field.Required(target, "Target namespace and/or target name must be supplied"))
	}
	if namespace := spec.Target.Namespace; namespace != nil {
		errs = append(errs, name(*namespace, target.Child("namespace"), validation.IsDNS1123Label)...)
	}
	if to := spec.Target.Name; to != nil {
		errs = append(errs, name(*to, target.Child("name"), validation.IsDNS1123Subdomain)...)
	}
	if to := objecttransfer.Target(spec); to.Namespace == spec.Source.Namespace && to.Name == spec.Source.Name {
		errs = append(errs, field.Invalid(target, to.String(), "it is the source; name another namespace, or another name"))
	}
	return errs
}

// name checks one part of what names an object.
func name(value string, at *field.Path, check func(string) []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range check(value) {
		errs = append(errs, field.Invalid(at, value, problem))
	}
	return errs
}

// ValidateUpdate returns what is wrong with changing before into after.
func ValidateUpdate(before, after *cdiv1.ObjectTransfer) field.ErrorList {
	if equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "ObjectTransfer spec is immutable; delete it, which takes back what has not arrived, and create another")}
}

// Free returns what is wrong with a valid spec at path while somebody has its target's name.
func Free(ctx context.Context, reader client.Reader, spec *cdiv1.ObjectTransferSpec, path *field.Path) (field.ErrorList, error) {
	target := objecttransfer.Target(spec)
	objects := []client.Object{&corev1.PersistentVolumeClaim{}}
	if spec.Source.Kind == "DataVolume" {
		objects = append(objects, &cdiv1.DataVolume{})
	}
	for _, object := range objects {
		err := reader.Get(ctx, target, object)
		if err == nil {
			return field.ErrorList{field.Invalid(path.Child("target"), target.String(), fmt.Sprintf("ObjectTransfer target %q already exists; delete it, or take another name", target.String()))}, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("looking for target %s: %w", target, err)
		}
	}
	return nil, nil
}
