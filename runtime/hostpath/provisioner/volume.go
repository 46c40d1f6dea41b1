package provisioner

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// persistentVolume is the PersistentVolume of a volume that the driver made for a claim.
func persistentVolume(driver string, options controller.ProvisionOptions, volume *csi.Volume) *corev1.PersistentVolume {
	claim := options.PVC
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(volume.GetCapacityBytes(), resource.BinarySI)},
			VolumeMode:                    new(ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)),
			PersistentVolumeReclaimPolicy: ptr.Deref(options.StorageClass.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			NodeAffinity:                  affinity(volume.GetAccessibleTopology()),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: volume.GetVolumeId(), VolumeAttributes: volume.GetVolumeContext(),
			}},
		},
	}
}

// affinity binds a volume to the nodes of any of the topologies.
func affinity(topologies []*csi.Topology) *corev1.VolumeNodeAffinity {
	required := &corev1.NodeSelector{}
	for _, topology := range topologies {
		var term corev1.NodeSelectorTerm
		for key, value := range topology.GetSegments() {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value},
			})
		}
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, term)
	}
	return &corev1.VolumeNodeAffinity{Required: required}
}

// NodeOf returns the node that a volume is bound to by the label key, or "".
func NodeOf(volume *corev1.PersistentVolume, key string) string {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == key && expression.Operator == corev1.NodeSelectorOpIn && len(expression.Values) == 1 {
				return expression.Values[0]
			}
		}
	}
	return ""
}
