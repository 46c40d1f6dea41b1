package cdiconfig

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// ValidateControlPlane returns what is wrong with what a CDI object's spec, at path, says of the pods of CDI's control plane.
func ValidateControlPlane(spec *cdiv1.CDISpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, asked := range []struct {
		name     string
		replicas *int32
	}{
		{"deploymentReplicas", spec.Infra.DeploymentReplicas},
		{"apiServerReplicas", spec.Infra.APIServerReplicas},
		{"uploadProxyReplicas", spec.Infra.UploadProxyReplicas},
	} {
		if asked.replicas != nil && *asked.replicas < 1 {
			errs = append(errs, field.Invalid(path.Child("infra", asked.name), *asked.replicas, "it is at least 1"))
		}
	}
	if class := string(ptr.Deref(spec.PriorityClass, "")); class != "" {
		if wrong := validation.IsDNS1123Subdomain(class); len(wrong) > 0 {
			errs = append(errs, field.Invalid(path.Child("priorityClass"), class, "it is no name of a PriorityClass: "+strings.Join(wrong, "; ")))
		}
	}
	return errs
}
