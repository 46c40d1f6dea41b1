package cdiconfig

import (
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/verbosity"
)

// Validate returns what is wrong with a configuration, which is at path and may be nil.
func Validate(spec *cdiv1.CDIConfigSpec, path *field.Path) field.ErrorList {
	if spec == nil {
		return nil
	}
	var errs field.ErrorList
	if overhead := spec.FilesystemOverhead; overhead != nil {
		at := path.Child("filesystemOverhead")
		errs = append(errs, percent(overhead.Global, at.Child("global"))...)
		for class, own := range overhead.StorageClass {
			errs = append(errs, percent(own, at.Child("storageClass").Key(class))...)
		}
	}
	if proxy := spec.UploadProxyURLOverride; proxy != nil && *proxy != "" {
		if host := strings.TrimPrefix(*proxy, "https://"); !isHost(host) {
			errs = append(errs, field.Invalid(path.Child("uploadProxyURLOverride"), *proxy, "write the proxy's host as clients reach it, such as uploads.example.com or https://uploads.example.com:8443"))
		}
	}
	for i, registry := range spec.InsecureRegistries {
		if !isHost(registry) {
			errs = append(errs, field.Invalid(path.Child("insecureRegistries").Index(i), registry, "write it as host or host:port, without a scheme or a path"))
		}
	}
	if level := spec.LogVerbosity; level != nil && (*level < 0 || *level > verbosity.Max) {
		errs = append(errs, field.Invalid(path.Child("logVerbosity"), *level, fmt.Sprintf("levels are 0 to %d", verbosity.Max)))
	}
	errs = append(errs, tlspolicy.ValidateProfile(spec.TLSSecurityProfile, path.Child("tlsSecurityProfile"))...)
	errs = append(errs, validateProxy(spec.ImportProxy, path.Child("importProxy"))...)
	return append(errs, resources(spec.PodResourceRequirements, path.Child("podResourceRequirements"))...)
}

func percent(value cdiv1.Percent, at *field.Path) field.ErrorList {
	switch {
	case value == "" || valid(value):
		return nil
	case value == "1":
		return field.ErrorList{field.Invalid(at, value, "it would be a file system of which nothing is left for files; write less than 1")}
	}
	return field.ErrorList{field.Invalid(at, value, "write a part of one with up to three places, from 0 to 0.999, such as 0.06")}
}

// isHost says whether value is a host with or without a port, and nothing else.
func isHost(value string) bool {
	u, err := url.Parse("https://" + value)
	return err == nil && u.Host == value && u.Hostname() != ""
}

// resources checks what importer pods ask for and may have, together with the defaults for what is left out.
func resources(set *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	if set == nil {
		return nil
	}
	var errs field.ErrorList
	if len(set.Claims) > 0 {
		errs = append(errs, field.Forbidden(at.Child("claims"), "importer pods have no devices to claim; remove it"))
	}
	for name, list := range map[string]corev1.ResourceList{"requests": set.Requests, "limits": set.Limits} {
		for resource, amount := range list {
			if amount.Sign() < 0 {
				errs = append(errs, field.Invalid(at.Child(name).Key(string(resource)), amount.String(), "an amount is not negative"))
			}
		}
	}
	all := podResources(set)
	for resource, request := range all.Requests {
		if limit, isSet := all.Limits[resource]; isSet && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(at.Child("limits").Key(string(resource)), limit.String(), "it is less than the request of "+request.String()+"; raise it, or lower the request"))
		}
	}
	return errs
}
