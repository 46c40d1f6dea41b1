package datavolume

import (
	"fmt"
	"strings"

	"github.com/containers/image/v5/docker/reference"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// registry checks an image, and whether what is set goes with who pulls it. Of the other fields the list of supported
// ones says all.
func registry(source *cdiv1.DataVolumeSourceRegistry, at *field.Path) field.ErrorList {
	errs := imageAddress(source, at)
	if PulledByNode(source) && ptr.Deref(source.CertConfigMap, "") != "" {
		errs = append(errs, field.Forbidden(at.Child("certConfigMap"), "with pullMethod node the node's container runtime asks the registry, and trusts the authorities that it is set up with; remove certConfigMap, or use pullMethod pod"))
	}
	return errs
}

// PulledByNode reports whether the kubelet pulls the image, with the node's credentials and mirrors.
func PulledByNode(source *cdiv1.DataVolumeSourceRegistry) bool {
	return ptr.Deref(source.PullMethod, "") == cdiv1.RegistryPullNode
}

// imageStream checks the name of an ImageStream. Whether the cluster has any the DataVolume says.
func imageStream(source *cdiv1.DataVolumeSourceRegistry, at *field.Path) field.ErrorList {
	name, at := *source.ImageStream, at.Child("imageStream")
	switch {
	case source.URL != nil:
		return field.ErrorList{field.Invalid(at, name, "Source registry should have either URL or ImageStream; keep one of them")}
	case name == "":
		return field.ErrorList{field.Invalid(at, name, "Source registry ImageStream is not valid; name it")}
	case !PulledByNode(source):
		return field.ErrorList{field.Invalid(at, name, "Source registry ImageStream is supported only with node pull import method; set pullMethod: node, or name the image by url")}
	}
	return nil
}

// imageAddress checks the address of an image.
func imageAddress(source *cdiv1.DataVolumeSourceRegistry, at *field.Path) field.ErrorList {
	switch {
	case source.ImageStream != nil:
		return imageStream(source, at)
	case source.URL == nil || *source.URL == "":
		return field.ErrorList{field.Required(at.Child("url"), "Source registry should have either URL or ImageStream; set url")}
	}
	address := *source.URL
	refuse := func(detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(at.Child("url"), address, detail)}
	}
	name, ok := strings.CutPrefix(address, cdiv1.RegistrySchemeDocker+"://")
	switch {
	case strings.HasPrefix(address, cdiv1.RegistrySchemeOci+":"):
		return refuse("an oci-archive would have to lie in the importer pod, where nobody can put it, and no node pulls one; publish the archive on a web server (source http) or upload it, or push it to a registry (skopeo copy oci-archive:FILE docker://…)")
	case !ok:
		return refuse(fmt.Sprintf("Illegal registry source URL scheme %s; write docker://host/name:tag", address))
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return refuse(fmt.Sprintf("no image is named so: %v; write docker://host/name:tag or docker://host/name@sha256:…", err))
	}
	_, tagged := named.(reference.Tagged)
	if _, digested := named.(reference.Digested); tagged && digested {
		return refuse("name the image by its tag or by its digest, not both")
	}
	return nil
}
