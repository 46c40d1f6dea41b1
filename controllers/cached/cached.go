// Package cached says what of the cluster virt-controller keeps in its memory, and hears of: events come of what is cached only. Tests
// that run a controller under a manager give it the same cache, so that nothing wakes it there which would not in a cluster.
package cached

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
)

// Options keep the memory small: of pods only our own are cached, of volumes those that are on their way, and of every
// object only what some controller reads; of Ingresses those of Slipway's namespace.
func Options(namespace string) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   {Transform: slimPod, Label: labelled(names.LabelPod)},
			&corev1.Node{}:                  {Transform: slimNode},
			&corev1.PersistentVolume{}:      {Label: labelled(datavolume.LabelCloneFor)},
			&policyv1.PodDisruptionBudget{}: {Label: labelled(virtv1.CreatedByLabel)},
			&networkingv1.Ingress{}:         {Namespaces: map[string]cache.Config{namespace: {}}},
		},
	}
}

// labelled selects the objects that have a label.
func labelled(name string) labels.Selector {
	exists, err := labels.NewRequirement(name, selection.Exists, nil)
	if err != nil {
		return labels.Everything() // never: the names are constants, and a test holds them to the rules
	}
	return labels.NewSelector().Add(*exists)
}

// slimNode drops what no controller reads of a node, which is most of it.
func slimNode(in any) (any, error) {
	if node, ok := in.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images = nil
		node.Status.NodeInfo = corev1.NodeSystemInfo{}
		node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil
	}
	return in, nil
}

// slimPod drops what no controller reads of a pod that exists: how it was asked for,
// but for its containers' names, images and requests, and its claims.
func slimPod(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	pod.ManagedFields = nil
	pod.Spec.Affinity, pod.Spec.Tolerations, pod.Spec.SecurityContext = nil, nil, nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			c.Args, c.Command, c.Env, c.VolumeMounts, c.SecurityContext = nil, nil, nil, nil, nil
		}
	}
	return pod, nil
}
