package virtualmachineinstance

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// configDisc checks a volume that is a disc of what Kubernetes mounts into pods.
func configDisc(volume virtv1.Volume, at *field.Path) field.ErrorList {
	switch {
	case volume.ConfigMap != nil:
		here := at.Child("configMap")
		return append(named(volume.ConfigMap.Name, here.Child("name")), label(volume.ConfigMap.VolumeLabel, here)...)
	case volume.Secret != nil:
		here := at.Child("secret")
		return append(named(volume.Secret.SecretName, here.Child("secretName")), label(volume.Secret.VolumeLabel, here)...)
	case volume.ServiceAccount != nil:
		return named(volume.ServiceAccount.ServiceAccountName, at.Child("serviceAccount", "serviceAccountName"))
	case volume.DownwardAPI != nil:
		here := at.Child("downwardAPI")
		return append(downward(volume.DownwardAPI.Fields, here.Child("fields")), label(volume.DownwardAPI.VolumeLabel, here)...)
	}
	return nil
}

func named(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, fmt.Sprintf("%s is a required field", at))}
	}
	return nil
}

// labels are those that fit into an ISO 9660 image.
var labels = regexp.MustCompile(`^[ -~]{0,32}$`)

func label(text string, at *field.Path) field.ErrorList {
	if labels.MatchString(text) {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Child("volumeLabel"), text, "must be at most 32 letters, digits and signs of ASCII")}
}

// downward checks what the API server would refuse of the launcher pod much later.
func downward(items []corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, item := range items {
		here := at.Index(i)
		if !local(item.Path) {
			errs = append(errs, field.Invalid(here.Child("path"), item.Path, "must be a path within the disc, without '..'"))
		} else if seen[path.Clean(item.Path)] {
			errs = append(errs, field.Duplicate(here.Child("path"), item.Path))
		}
		seen[path.Clean(item.Path)] = true
		switch {
		case count(item.FieldRef != nil, item.ResourceFieldRef != nil) != 1:
			errs = append(errs, field.Invalid(here, item.Path, "must have exactly one of fieldRef and resourceFieldRef"))
		case item.FieldRef != nil:
			errs = append(errs, fact(item.FieldRef, here.Child("fieldRef"))...)
		default:
			errs = append(errs, share(item.ResourceFieldRef, here.Child("resourceFieldRef"))...)
		}
		if mode := item.Mode; mode != nil && (*mode < 0 || *mode > 0o777) {
			errs = append(errs, field.Invalid(here.Child("mode"), *mode, "must be a number between 0 and 0777 (octal), both inclusive"))
		}
	}
	return errs
}

// local says whether a path names a file below a folder.
func local(name string) bool {
	if name == "" || path.IsAbs(name) || strings.HasPrefix(name, "..") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return false
		}
	}
	return path.Clean(name) != "."
}

// facts are what Kubernetes tells of a pod in a file.
var facts = regexp.MustCompile(`^metadata\.(name|namespace|uid|labels|annotations|(labels|annotations)\['[^']+'\])$`)

func fact(ref *corev1.ObjectFieldSelector, at *field.Path) field.ErrorList {
	if version := ref.APIVersion; version != "" && version != "v1" {
		return field.ErrorList{field.NotSupported(at.Child("apiVersion"), version, []string{"v1"})}
	}
	if facts.MatchString(ref.FieldPath) {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Child("fieldPath"), ref.FieldPath,
		"must be metadata.name, metadata.namespace, metadata.uid, metadata.labels or metadata.annotations, of the last two also one: metadata.labels['key']")}
}

// shares are what Kubernetes tells of a container in a file.
var shares = regexp.MustCompile(`^(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.+)$`)

func share(ref *corev1.ResourceFieldSelector, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name := ref.ContainerName; name != "" && name != names.ComputeContainer {
		errs = append(errs, field.NotSupported(at.Child("containerName"), name, []string{names.ComputeContainer}))
	}
	if !shares.MatchString(ref.Resource) {
		errs = append(errs, field.Invalid(at.Child("resource"), ref.Resource, "must be limits or requests of cpu, memory, ephemeral-storage or hugepages-<size>, as limits.cpu"))
	}
	return errs
}
