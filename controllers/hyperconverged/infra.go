package hyperconverged

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
)

// infra is what the KubeVirt and the CDI object say of the components' pods. The zero value says nothing.
type infra struct {
	replicas map[string]int32 // of each Deployment that more than one pod is asked for
	priority string           // the PriorityClass of cdi-uploadproxy, which alone is CDI's only; empty for that of all

	placements  map[components.Placement]*sdkapi.NodePlacement // where pods are to run
	pullSecrets []corev1.LocalObjectReference                  // of the images of all pods, in their namespace
}

// infraOf reads both objects, each of which may be nil. What does the work of several of the field's Deployments gets as many
// pods as that which is to have most.
func infraOf(kubevirt *virtv1.KubeVirt, cdi *cdiv1.CDI) infra {
	asked := infra{replicas: map[string]int32{}, placements: map[components.Placement]*sdkapi.NodePlacement{}}
	want := func(name string, replicas int32) {
		if replicas > max(asked.replicas[name], 1) {
			asked.replicas[name] = replicas
		}
	}
	if kubevirt != nil && kubevirt.Spec.Infra != nil {
		for _, name := range []string{"virt-api", "virt-controller", "virt-exportproxy"} {
			want(name, int32(ptr.Deref(kubevirt.Spec.Infra.Replicas, 1)))
		}
	}
	if kubevirt != nil {
		asked.pullSecrets = kubevirt.Spec.ImagePullSecrets
		asked.placements[components.Infra] = placementOf(kubevirt.Spec.Infra)
		asked.placements[components.Workload] = placementOf(kubevirt.Spec.Workloads)
	}
	if cdi != nil {
		asked.placements[components.DataInfra] = cdi.Spec.Infra.NodePlacement.DeepCopy()
		asked.priority = string(ptr.Deref(cdi.Spec.PriorityClass, ""))
		want("virt-api", ptr.Deref(cdi.Spec.Infra.APIServerReplicas, 1))
		want("virt-controller", ptr.Deref(cdi.Spec.Infra.DeploymentReplicas, 1))
		want(components.UploadProxy, ptr.Deref(cdi.Spec.Infra.UploadProxyReplicas, 1))
	}
	return asked
}

// placementOf is what asked, which may be nil, says of nodes; nil for nothing.
func placementOf(asked *virtv1.ComponentConfig) *sdkapi.NodePlacement {
	if asked == nil || asked.NodePlacement == nil {
		return nil
	}
	return new(sdkapi.NodePlacement(*asked.NodePlacement.DeepCopy()))
}

// shape gives the Deployments and DaemonSets among objects what is asked of them.
func (i infra) shape(objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := render.PullBy(object, i.pullSecrets); err != nil {
			return err
		}
		if object.GetKind() != "Deployment" {
			continue
		}
		if replicas, asked := i.replicas[object.GetName()]; asked {
			if err := unstructured.SetNestedField(object.Object, int64(replicas), "spec", "replicas"); err != nil {
				return fmt.Errorf("setting the replicas of %s: %w", object.GetName(), err)
			}
		}
		if i.priority != "" && object.GetName() == components.UploadProxy {
			if err := unstructured.SetNestedField(object.Object, i.priority, "spec", "template", "spec", "priorityClassName"); err != nil {
				return fmt.Errorf("setting the PriorityClass of %s: %w", object.GetName(), err)
			}
		}
	}
	return nil
}

// findPriority drops a PriorityClass that is not there, for no pod could be made with it. Its event brings the next pass.
func (r *Reconciler) findPriority(ctx context.Context, s *scope, asked *infra) error {
	if asked.priority == "" {
		return nil
	}
	class := &metav1.PartialObjectMetadata{}
	class.SetGroupVersionKind(schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"))
	err := r.Client.Get(ctx, client.ObjectKey{Name: asked.priority}, class)
	if apierrors.IsNotFound(err) {
		s.classless = fmt.Sprintf("PriorityClass %s, which spec.priorityClass of CDI %s names for cdi-uploadproxy, does not exist; create it, or name another", asked.priority, s.cdi.Name)
		asked.priority = ""
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading PriorityClass %s: %w", asked.priority, err)
	}
	return nil
}
