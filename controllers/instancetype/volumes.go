package instancetype

import (
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// PreferredClass is the storage class that preference, which may be nil, has for disks that name none; empty for no preference.
func PreferredClass(preference *v1beta1.VirtualMachinePreferenceSpec) string {
	if preference == nil || preference.Volumes == nil {
		return ""
	}
	return preference.Volumes.PreferredStorageClassName
}

// LacksClass says whether a DataVolume's claim names no storage class. An empty name is one: it is of no class.
func LacksClass(spec *cdiv1.DataVolumeSpec) bool {
	return spec.PVC != nil && spec.PVC.StorageClassName == nil || spec.Storage != nil && spec.Storage.StorageClassName == nil
}

// FillClass makes a DataVolume's claim be of the class, unless that is empty or the claim names one itself.
func FillClass(spec *cdiv1.DataVolumeSpec, class string) {
	if class == "" {
		return
	}
	if spec.PVC != nil {
		fillPointer(&spec.PVC.StorageClassName, &class)
	}
	if spec.Storage != nil {
		fillPointer(&spec.Storage.StorageClassName, &class)
	}
}
