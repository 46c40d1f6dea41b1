package hyperconverged

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/names"
)

// actedOfCDI are the paths of the CDI object that a patch may set.
var actedOfCDI = []string{
	"/spec/config/uploadProxyURLOverride", "/spec/config/scratchSpaceStorageClass", "/spec/config/preallocation", "/spec/config/logVerbosity",
	"/spec/config/insecureRegistries", "/spec/config/filesystemOverhead/global", "/spec/config/filesystemOverhead/storageClass/",
	"/spec/config/podResourceRequirements/requests/", "/spec/config/podResourceRequirements/limits/",
	"/spec/config/tlsSecurityProfile/", "/spec/config/importProxy/HTTPProxy", "/spec/config/importProxy/HTTPSProxy", "/spec/config/importProxy/noProxy", "/spec/config/importProxy/trustedCAProxy",
	"/spec/certConfig/", "/spec/config/dataVolumeTTLSeconds", "/spec/config/webhookPvcRendering", "/spec/config/imagePullSecrets", "/spec/imagePullPolicy", "/spec/workload/",
	"/spec/infra/deploymentReplicas", "/spec/infra/apiServerReplicas", "/spec/infra/uploadProxyReplicas", "/spec/priorityClass",
	"/spec/infra/nodeSelector/", "/spec/infra/affinity/", "/spec/infra/tolerations", "/spec/customizeComponents/patches", "/spec/customizeComponents/flags/",
}

// cdiSpec is the spec of the CDI object: pods that fill disks run where workloads do.
func cdiSpec(hco *hcov1.HyperConverged) (map[string]any, error) {
	config, err := dataConfig(hco)
	if err != nil {
		return nil, err
	}
	spec := map[string]any{
		"imagePullPolicy":   "IfNotPresent",
		"uninstallStrategy": string(hcov1.BlockUninstall),
		"config":            config,
		"workload":          map[string]any{},
		"infra":             map[string]any{},
	}
	if asked := lifetimes(hco); asked != nil {
		if spec["certConfig"], err = asMap(asked); err != nil {
			return nil, fmt.Errorf("encoding certConfig of HyperConverged %s: %w", hco.Name, err)
		}
	}
	placements := hco.Spec.Deployment.NodePlacements
	for name, placement := range map[string]*sdkapi.NodePlacement{"infra": placements.Infra, "workload": placements.Workload} {
		if placement == nil {
			continue
		}
		if spec[name], err = asMap(placement); err != nil {
			return nil, fmt.Errorf("encoding %s of nodePlacements of HyperConverged %s: %w", name, hco.Name, err)
		}
	}
	return spec, nil
}

// dataConfig is what the HyperConverged object says of the disks of virtual machines, in the CDI
// object's words. Maps are there also when they are empty, for the annotation to put something into.
func dataConfig(hco *hcov1.HyperConverged) (map[string]any, error) {
	asked := hco.Spec.Storage
	config := map[string]any{
		"featureGates":            []any{cdiconfig.GateWaitForConsumer, cdiconfig.GateClaimAdoption},
		"filesystemOverhead":      map[string]any{"global": string(cdiconfig.DefaultOverhead), "storageClass": map[string]any{}},
		"podResourceRequirements": map[string]any{"requests": map[string]any{}, "limits": map[string]any{}},
		"importProxy":             map[string]any{},
	}
	set := map[string]any{}
	if asked.FilesystemOverhead != nil {
		set["filesystemOverhead"] = asked.FilesystemOverhead
	}
	if asked.WorkloadResourceRequirements != nil {
		set["podResourceRequirements"] = asked.WorkloadResourceRequirements
	}
	if profile := hco.Spec.Security.TLSSecurityProfile; profile != nil {
		config["tlsSecurityProfile"], set["tlsSecurityProfile"] = map[string]any{}, profile
	}
	for name, part := range set {
		fields, err := asMap(part)
		if err != nil {
			return nil, fmt.Errorf("encoding %s of HyperConverged %s: %w", name, hco.Name, err)
		}
		into, _ := config[name].(map[string]any)
		maps.Copy(into, fields)
	}
	if level := hco.Spec.Deployment.LogVerbosityConfig.CDI; level != nil {
		config["logVerbosity"] = int64(*level)
	}
	if asked.ScratchSpaceStorageClass != nil {
		config["scratchSpaceStorageClass"] = *asked.ScratchSpaceStorageClass
	}
	if asked.StorageImport != nil && len(asked.StorageImport.InsecureRegistries) > 0 {
		var registries []any
		for _, registry := range asked.StorageImport.InsecureRegistries {
			registries = append(registries, registry)
		}
		config["insecureRegistries"] = registries
	}
	return config, nil
}

// nameRegistries has the CDI object name the ConfigMap with a registries.conf that hco names; the field's API has no place for it.
func nameRegistries(hco *hcov1.HyperConverged, cdi *unstructured.Unstructured) error {
	name := hco.Annotations[names.AnnotationRegistries]
	if name == "" {
		return nil
	}
	cdi.SetAnnotations(map[string]string{names.AnnotationRegistries: name})
	return cdiconfig.ValidateRegistries(name)
}

// dropEmpty removes the maps within value that hold nothing. When they are applied to what held something before, the API server
// makes null of them, which it then refuses.
func dropEmpty(value any) {
	fields, _ := value.(map[string]any)
	for name, field := range fields {
		dropEmpty(field)
		if within, isMap := field.(map[string]any); isMap && len(within) == 0 {
			delete(fields, name)
		}
	}
}

func asMap(value any) (map[string]any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("writing it as JSON: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("reading it back: %w", err)
	}
	return fields, nil
}

// checkDataConfig says what is wrong with the configuration that HyperConverged and its annotation give the CDI object.
func checkDataConfig(object *unstructured.Unstructured) error {
	cdi := &cdiv1.CDI{}
	data, err := json.Marshal(object.Object)
	if err == nil {
		err = json.Unmarshal(data, cdi)
	}
	if err != nil {
		return fmt.Errorf("annotation %s sets what CDI cannot hold: %w", hcov1.AnnotationCDIPatch, err)
	}
	errs := append(cdiconfig.Validate(cdi.Spec.Config, field.NewPath("spec", "config")), cdiconfig.ValidateControlPlane(&cdi.Spec, field.NewPath("spec"))...)
	if errs = append(errs, certs.ValidateCDI(cdi.Spec.CertConfig, field.NewPath("spec", "certConfig"))...); len(errs) > 0 {
		var messages []string
		for _, err := range errs {
			messages = append(messages, err.Error())
		}
		return errors.New("spec.storage, or annotation " + hcov1.AnnotationCDIPatch + ": of CDI: " + strings.Join(messages, "; "))
	}
	return nil
}
