package kubevirtconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/ratelimit"
	"github.com/slipway-vm/slipway/internal/supported"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/verbosity"
)

// shortestInterval is the least time between two batches of VMs that are restarted.
const shortestInterval = time.Second

// mostPerNode is how many virtual machines a node may be said to have; the kubelet gets a list of as many.
const mostPerNode = 10000

// longestSMBIOS is how many bytes a text of SMBIOS has at most.
const longestSMBIOS = 255

// Validate returns what is wrong with a KubeVirt object, which is given as JSON has it: fields that nothing
// acts on, and values of which nothing can be made.
func Validate(object map[string]any) field.ErrorList {
	errs := supported.Unsupported(supported.KubeVirt, withoutEmpty(object))
	spec, _ := object["spec"].(map[string]any)
	path := field.NewPath("spec")
	errs = append(errs, part(spec, path, "workloadUpdateStrategy", updates)...)
	errs = append(errs, part(spec, path, "infra", func(asked *virtv1.ComponentConfig, at *field.Path) field.ErrorList {
		if asked.Replicas != nil && *asked.Replicas == 0 {
			return field.ErrorList{field.Invalid(at.Child("replicas"), *asked.Replicas, "infra replica count can't be 0")}
		}
		return nil
	})...)
	errs = append(errs, part(spec, path, "imagePullSecrets", pullSecrets)...)
	errs = append(errs, part(spec, path, "certificateRotateStrategy", func(asked *virtv1.KubeVirtCertificateRotateStrategy, at *field.Path) field.ErrorList {
		return certs.ValidateKubeVirt(asked.SelfSigned, at.Child("selfSigned"))
	})...)
	return append(errs, part(spec, path, "configuration", configuration)...)
}

// part has validate judge one field of spec, as its Go type. What that cannot hold is refused with the field's path.
func part[T any](spec map[string]any, path *field.Path, name string, validate func(*T, *field.Path) field.ErrorList) field.ErrorList {
	data, err := json.Marshal(spec[name])
	typed := new(T)
	if err == nil {
		err = json.Unmarshal(data, typed)
	}
	if err != nil {
		return field.ErrorList{field.Invalid(path.Child(name), string(data), err.Error())}
	}
	return validate(typed, path.Child(name))
}

// Warnings says what of a KubeVirt object does nothing, and is let through because the field's clients write it.
func Warnings(kubevirt *virtv1.KubeVirt) []string {
	developer := kubevirt.Spec.Configuration.DeveloperConfiguration
	if developer == nil {
		return nil
	}
	var warnings []string
	path := field.NewPath("spec", "configuration", "developerConfiguration", "featureGates")
	for i, gate := range developer.FeatureGates {
		if !slices.Contains(featuregate.Known(), gate) {
			warnings = append(warnings, fmt.Sprintf("%s: Slipway does not act on the feature gate %s; there are: %s",
				path.Index(i), gate, strings.Join(featuregate.Known(), ", ")))
		}
	}
	return warnings
}

// withoutEmpty is object without the parts that the API's Go types write out of themselves, also when they hold nothing.
func withoutEmpty(object map[string]any) map[string]any {
	spec, isMap := object["spec"].(map[string]any)
	if !isMap {
		return object
	}
	spec = maps.Clone(spec)
	for _, name := range []string{"certificateRotateStrategy", "customizeComponents"} {
		if part, isMap := spec[name].(map[string]any); isMap && len(part) == 0 {
			delete(spec, name)
		}
	}
	object = maps.Clone(object)
	object["spec"] = spec
	return object
}

// pullSecrets refuses what no Secret is named, and one that is named twice.
func pullSecrets(asked *[]corev1.LocalObjectReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, secret := range *asked {
		at := path.Index(i).Child("name")
		if slices.Contains((*asked)[:i], secret) {
			errs = append(errs, field.Duplicate(at, secret.Name))
		}
		for _, problem := range validation.IsDNS1123Subdomain(secret.Name) {
			errs = append(errs, field.Invalid(at, secret.Name, "it is no name of a Secret: "+problem))
		}
	}
	return errs
}

// updates refuses what cannot be done of what is to become of VMs with a former launcher.
func updates(asked *virtv1.KubeVirtWorkloadUpdateStrategy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, method := range asked.WorkloadUpdateMethods {
		at := path.Child("workloadUpdateMethods").Index(i)
		switch method {
		case virtv1.WorkloadUpdateMethodEvict:
		case virtv1.WorkloadUpdateMethodLiveMigrate:
			errs = append(errs, field.Invalid(at, method, "there is no live migration yet; use Evict, by which virtual machines are restarted, "+
				"or leave the list out: they get the new launcher at their next start"))
		default:
			errs = append(errs, field.NotSupported(at, method, []virtv1.WorkloadUpdateMethod{virtv1.WorkloadUpdateMethodEvict}))
		}
	}
	if size := asked.BatchEvictionSize; size != nil && *size < 1 {
		errs = append(errs, field.Invalid(path.Child("batchEvictionSize"), *size, "it is at least 1"))
	}
	if interval := asked.BatchEvictionInterval; interval != nil && interval.Duration < shortestInterval {
		errs = append(errs, field.Invalid(path.Child("batchEvictionInterval"), interval.Duration.String(), fmt.Sprintf("it is at least %s", shortestInterval)))
	}
	return errs
}

func configuration(config *virtv1.KubeVirtConfiguration, path *field.Path) field.ErrorList {
	errs := developer(config.DeveloperConfiguration, path.Child("developerConfiguration"))
	errs = append(errs, tlspolicy.ValidateKubeVirt(config.TLSConfiguration, path.Child("tlsConfiguration"))...)
	if class := config.VMStateStorageClass; class != "" {
		for _, problem := range validation.IsDNS1123Subdomain(class) {
			errs = append(errs, field.Invalid(path.Child("vmStateStorageClass"), class, "it is no name of a StorageClass: "+problem))
		}
	}
	for _, model := range slices.Sorted(maps.Keys(config.ObsoleteCPUModels)) {
		for _, problem := range validation.IsQualifiedName(virtv1.CPUModelLabel + model) {
			errs = append(errs, field.Invalid(path.Child("obsoleteCPUModels").Key(model), model, "no CPU model has such a name: "+problem))
		}
	}
	errs = append(errs, ratelimit.Validate(config, path)...)
	errs = append(errs, guests(config, path)...)
	errs = append(errs, roles(config, path)...)
	errs = append(errs, launchers(config, path)...)
	if most := config.VirtualMachineInstancesPerNode; most != nil && (*most < 1 || *most > mostPerNode) {
		errs = append(errs, field.Invalid(path.Child("virtualMachineInstancesPerNode"), *most, fmt.Sprintf("it is from 1 to %d", mostPerNode)))
	}
	errs = append(errs, smbios(config.SMBIOSConfig, path.Child("smbios"))...)
	if live := config.LiveUpdateConfiguration; live != nil && live.MaxGuest != nil && live.MaxGuest.Sign() <= 0 {
		at := path.Child("liveUpdateConfiguration", "maxGuest")
		errs = append(errs, field.Invalid(at, live.MaxGuest.String(), "write how much memory guests may grow to, or leave it out: they do not grow"))
	}
	return errs
}

// smbios refuses what cannot be said in SMBIOS, where a text is one line and ends at the first zero.
func smbios(said *virtv1.SMBiosConfiguration, path *field.Path) field.ErrorList {
	if said == nil {
		return nil
	}
	var errs field.ErrorList
	for _, text := range []struct{ name, value string }{
		{"manufacturer", said.Manufacturer}, {"product", said.Product}, {"version", said.Version}, {"sku", said.Sku}, {"family", said.Family},
	} {
		if strings.ContainsFunc(text.value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			errs = append(errs, field.Invalid(path.Child(text.name), text.value, "it is one line of letters, digits, signs and spaces; remove all else"))
		}
		if len(text.value) > longestSMBIOS {
			errs = append(errs, field.TooLongMaxLength(path.Child(text.name), text.value, longestSMBIOS))
		}
	}
	return errs
}

func badLevel(path *field.Path, level uint) *field.Error {
	return field.Invalid(path, level, fmt.Sprintf("levels are 1 to %d; 0 says nothing", verbosity.Max))
}

func developer(asked *virtv1.DeveloperConfiguration, path *field.Path) field.ErrorList {
	if asked == nil {
		return nil
	}
	var errs field.ErrorList
	for i, gate := range asked.DisabledFeatureGates {
		if slices.Contains(asked.FeatureGates, gate) {
			errs = append(errs, field.Invalid(path.Child("disabledFeatureGates").Index(i), gate, "featureGates has it, too; name it in one of them"))
		}
	}
	if ratio := asked.CPUAllocationRatio; ratio < 0 {
		errs = append(errs, field.Invalid(path.Child("cpuAllocationRatio"), ratio, "it is at least 1"))
	}
	// All of a disk may not be missing: nothing would be made of it.
	if percent := asked.LessPVCSpaceToleration; percent < 0 || percent > 99 {
		errs = append(errs, field.Invalid(path.Child("pvcTolerateLessSpaceUpToPercent"), percent, "it is from 1 to 99; leave it out for 10"))
	}
	errs = append(errs, metav1validation.ValidateLabels(asked.NodeSelectors, path.Child("nodeSelectors"))...)
	if levels := asked.LogVerbosity; levels != nil {
		for name, level := range map[string]uint{
			"virtAPI": levels.VirtAPI, "virtController": levels.VirtController, "virtHandler": levels.VirtHandler,
			"virtLauncher": levels.VirtLauncher, "virtOperator": levels.VirtOperator,
		} {
			if level > verbosity.Max {
				errs = append(errs, badLevel(path.Child("logVerbosity", name), level))
			}
		}
		for _, node := range slices.Sorted(maps.Keys(levels.NodeVerbosity)) {
			if level := levels.NodeVerbosity[node]; level > verbosity.Max {
				errs = append(errs, badLevel(path.Child("logVerbosity", "nodeVerbosity").Key(node), level))
			}
		}
	}
	return errs
}
