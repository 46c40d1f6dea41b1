package cdiconfig

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
)

// Feature gates of the CDI object.
const (
	// GateWaitForConsumer has claims wait for their first consumer. It is always honoured.
	GateWaitForConsumer = "HonorWaitForFirstConsumer"
	// GateClaimAdoption has DataVolumes take over a claim of their name that is there.
	GateClaimAdoption = "DataVolumeClaimAdoption"
)

// What holds where nothing else is set.
const (
	// DefaultOverhead is the part of a file system's size that files cannot have.
	DefaultOverhead = cdiv1.Percent("0.06")
	noOverhead      = cdiv1.Percent("0") // of Slipway's own node storage, whose volumes are directories
)

// Status computes the status of the CDIConfig: what spec sets, else the defaults. classes are
// the cluster's. It is also what holds while there is no CDIConfig.
func Status(spec *cdiv1.CDIConfigSpec, classes []storagev1.StorageClass) cdiv1.CDIConfigStatus {
	return cdiv1.CDIConfigStatus{
		UploadProxyURL:                 spec.UploadProxyURLOverride,
		ScratchSpaceStorageClass:       scratchClass(spec, classes),
		DefaultPodResourceRequirements: podResources(spec.PodResourceRequirements),
		FilesystemOverhead:             overheads(spec.FilesystemOverhead, classes),
		Preallocation:                  ptr.Deref(spec.Preallocation, false),
		ImportProxy:                    shown(spec.ImportProxy),
		ImagePullSecrets:               slices.Clone(spec.ImagePullSecrets),
	}
}

// scratchClass is the class that the field's clients take for scratch space: the one asked for
// when it exists, else the cluster's default. Slipway's own importers need none.
func scratchClass(spec *cdiv1.CDIConfigSpec, classes []storagev1.StorageClass) string {
	var byDefault string
	for i := range classes {
		if spec.ScratchSpaceStorageClass != nil && classes[i].Name == *spec.ScratchSpaceStorageClass {
			return classes[i].Name
		}
		if byDefault == "" && classes[i].Annotations[names.AnnotationDefaultClass] == "true" {
			byDefault = classes[i].Name
		}
	}
	return byDefault
}

// podResources is what importer pods ask for and may have, with what is set in the place of the defaults.
func podResources(set *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	resources := &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("60M")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
	if set != nil {
		maps.Copy(resources.Requests, set.Requests)
		maps.Copy(resources.Limits, set.Limits)
	}
	return resources
}

// overheads is the part of a file system's size that files cannot have, for all classes and for each.
func overheads(set *cdiv1.FilesystemOverhead, classes []storagev1.StorageClass) *cdiv1.FilesystemOverhead {
	if set == nil {
		set = &cdiv1.FilesystemOverhead{}
	}
	all := &cdiv1.FilesystemOverhead{Global: DefaultOverhead, StorageClass: map[string]cdiv1.Percent{}}
	if valid(set.Global) {
		all.Global = set.Global
	}
	for i := range classes {
		name := classes[i].Name
		switch own := set.StorageClass[name]; {
		case valid(own):
			all.StorageClass[name] = own
		case classes[i].Provisioner == names.HostPathDriver:
			all.StorageClass[name] = noOverhead
		default:
			all.StorageClass[name] = all.Global
		}
	}
	return all
}

// valid says whether a file system with this overhead holds anything.
func valid(overhead cdiv1.Percent) bool {
	value, err := strconv.ParseFloat(string(overhead), 64)
	return err == nil && value >= 0 && value < 1
}

// Overhead returns the overhead of a class's file systems, between 0 and 1; of an unknown class, nil, the one for all.
func Overhead(status *cdiv1.CDIConfigStatus, class *storagev1.StorageClass) float64 {
	from := status.FilesystemOverhead
	if from == nil {
		from = &cdiv1.FilesystemOverhead{}
	}
	overhead := from.Global
	if class != nil {
		if own, isSet := from.StorageClass[class.Name]; isSet {
			overhead = own
		} else if class.Provisioner == names.HostPathDriver { // made a moment ago
			overhead = noOverhead
		}
	}
	if !valid(overhead) {
		overhead = DefaultOverhead
	}
	value, err := strconv.ParseFloat(string(overhead), 64)
	if err != nil {
		return 0 // never: it is valid
	}
	return value
}
