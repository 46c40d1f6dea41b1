package hostpathprovisioner

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
)

// className is the StorageClass of the first pool; further ones have the pool's name behind it.
const className = "hostpath-csi"

// parameterPool is the parameter of a StorageClass by which the driver knows the pool.
const parameterPool = "storagePool"

// component is the label value of what this controller makes.
const component = "hostpath-provisioner"

func labels() map[string]string {
	return map[string]string{names.LabelManagedBy: names.ManagedBy, names.LabelComponent: component}
}

func isOurs(object metav1.Object) bool {
	return object.GetLabels()[names.LabelManagedBy] == names.ManagedBy && object.GetLabels()[names.LabelComponent] == component
}

// csiDriver tells Kubernetes how the driver works: volumes need no attaching, the kubelet
// gives their files to the pod's group, and what is free is not published.
func csiDriver() *storagev1.CSIDriver {
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: names.HostPathDriver, Labels: labels()},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired:       new(false),
			PodInfoOnMount:       new(true),
			StorageCapacity:      new(false),
			FSGroupPolicy:        new(storagev1.FileFSGroupPolicy),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		},
	}
}

// storageClasses are the classes of the pools, in their order. A volume is made where its
// first pod runs, since no other node could use it.
func storageClasses(spec hppv1beta1.HostPathProvisionerSpec) []*storagev1.StorageClass {
	var classes []*storagev1.StorageClass
	for i, pool := range spec.Pools() {
		name := className
		if i > 0 {
			name += "-" + pool.Name
		}
		classes = append(classes, &storagev1.StorageClass{
			ObjectMeta:        metav1.ObjectMeta{Name: name, Labels: labels()},
			Provisioner:       names.HostPathDriver,
			Parameters:        map[string]string{parameterPool: pool.Name},
			ReclaimPolicy:     new(corev1.PersistentVolumeReclaimDelete),
			VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
			AllowedTopologies: allowedNodes(spec.Workload.NodeSelector),

			AllowVolumeExpansion: new(true),
		})
	}
	return classes
}

// allowedNodes makes the scheduler keep to the nodes that have the pools.
func allowedNodes(selector map[string]string) []corev1.TopologySelectorTerm {
	var term corev1.TopologySelectorTerm
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		term.MatchLabelExpressions = append(term.MatchLabelExpressions, corev1.TopologySelectorLabelRequirement{
			Key: key, Values: []string{selector[key]},
		})
	}
	if term.MatchLabelExpressions == nil {
		return nil
	}
	return []corev1.TopologySelectorTerm{term}
}
