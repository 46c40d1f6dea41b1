package env

import (
	"context"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// replaced waits until every component runs this checkout's image: after an upgrade, what the
// HyperConverged object says may still be the former operator's word.
func (c *Cluster) replaced(ctx context.Context, out io.Writer) error {
	images, err := c.Images()
	if err != nil {
		return err
	}
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: name}
	}
	components := []client.Object{
		&appsv1.Deployment{ObjectMeta: in("virt-operator")},
		&appsv1.Deployment{ObjectMeta: in("virt-controller")},
		&appsv1.Deployment{ObjectMeta: in("virt-api")},
		&appsv1.DaemonSet{ObjectMeta: in("virt-handler")},
	}
	for _, component := range components {
		err := c.Await(ctx, out, component, boundInstall, func(obj client.Object) (string, bool, error) {
			words, done := rollout(obj, images["slipway"].Ref)
			return words, done, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rollout says how far a Deployment or DaemonSet is in running image everywhere, and whether it
// is through.
func rollout(component client.Object, image string) (string, bool) {
	var (
		pods                   corev1.PodSpec
		observed               int64
		wanted, updated, ready int32
		all                    int32
	)
	switch o := component.(type) {
	case *appsv1.Deployment:
		pods, observed, wanted = o.Spec.Template.Spec, o.Status.ObservedGeneration, *o.Spec.Replicas // 1 by default
		updated, ready, all = o.Status.UpdatedReplicas, o.Status.AvailableReplicas, o.Status.Replicas
	case *appsv1.DaemonSet:
		pods, observed, wanted = o.Spec.Template.Spec, o.Status.ObservedGeneration, o.Status.DesiredNumberScheduled
		updated, ready, all = o.Status.UpdatedNumberScheduled, o.Status.NumberAvailable, o.Status.CurrentNumberScheduled
	}
	if pods.Containers[0].Image != image {
		return "of another image: " + pods.Containers[0].Image, false
	}
	if observed < component.GetGeneration() {
		return "not seen yet", false
	}
	done := wanted > 0 && updated == wanted && ready == wanted && all == wanted
	return fmt.Sprintf("%d of %d replaced, %d available, %d in all", updated, wanted, ready, all), done
}
