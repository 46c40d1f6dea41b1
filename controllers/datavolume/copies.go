package datavolume

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// copies are the DataVolumes that claims are copied for, or will be: a pod that gets one of these claims is their business.
type copies struct {
	mu sync.Mutex
	of map[types.NamespacedName]types.NamespacedName // a DataVolume's source
}

// begin notes that source is copied for dv.
func (c *copies) begin(dv, source types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[types.NamespacedName]types.NamespacedName{}
	}
	c.of[dv] = source
}

// end notes that nothing is copied for dv any more.
func (c *copies) end(dv types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, dv)
}

// under requests the DataVolumes whose source a pod has.
func (c *copies) under(_ context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var requests []reconcile.Request
	for dv, source := range c.of {
		if source.Namespace == pod.Namespace && has(pod, source.Name) {
			requests = append(requests, reconcile.Request{NamespacedName: dv})
		}
	}
	return requests
}

// has reports whether pod has a claim.
func has(pod *corev1.Pod, claim string) bool {
	for _, volume := range pod.Spec.Volumes {
		if from := volume.PersistentVolumeClaim; from != nil && from.ClaimName == claim {
			return true
		}
	}
	return false
}
