package provisioner

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

// request is what the driver is asked for, to make a volume called name for a claim.
func request(name string, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, source *csi.VolumeContentSource) (*csi.CreateVolumeRequest, error) {
	req := &csi.CreateVolumeRequest{Name: name, Parameters: class.Parameters, VolumeContentSource: source}
	req.CapacityRange = &csi.CapacityRange{
		RequiredBytes: claim.Spec.Resources.Requests.Storage().Value(),
		LimitBytes:    claim.Spec.Resources.Limits.Storage().Value(),
	}
	for _, accessMode := range claim.Spec.AccessModes {
		mode, err := driverMode(accessMode)
		if err != nil {
			return nil, err
		}
		capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
		if ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock {
			capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		} else {
			capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: class.MountOptions}}
		}
		req.VolumeCapabilities = append(req.VolumeCapabilities, capability)
	}
	return req, nil
}

func driverMode(mode corev1.PersistentVolumeAccessMode) (csi.VolumeCapability_AccessMode_Mode, error) {
	switch mode {
	case corev1.ReadWriteOnce:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, nil
	case corev1.ReadWriteOncePod:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, nil
	default:
		return csi.VolumeCapability_AccessMode_UNKNOWN,
			fmt.Errorf("access mode %s is not supported, a volume is on one node: ask for ReadWriteOnce or ReadWriteOncePod", mode)
	}
}
