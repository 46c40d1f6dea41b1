package hyperconverged

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// An APIService is left alone while nobody would answer for it, and where another's server does.
func TestWhichAPIServicesAreNotMade(t *testing.T) {
	const templates, machines = "v1beta1.subresources.template.kubevirt.io", "v1.subresources.kubevirt.io"
	service := func(name, group string, labels map[string]string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
			"spec": map[string]any{"group": group, "service": map[string]any{"name": "virt-api"}},
		}}
		object.SetName(name)
		object.SetLabels(labels)
		return object
	}
	ours := map[string]string{names.LabelManagedBy: names.ManagedBy}
	rolledOut := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "slipway", Name: "virt-api", Generation: 1}}
	rolledOut.Spec.Replicas = new(int32(1))
	rolledOut.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	rolledOut.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: "True"}}
	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		live   client.Object
		server bool
		want   bool
	}{
		"before its server":                 {service(templates, groupVMTemplateVerbs, nil), nil, false, true},
		"with its server":                   {service(templates, groupVMTemplateVerbs, nil), nil, true, false},
		"another's":                         {service(templates, groupVMTemplateVerbs, nil), service(templates, groupVMTemplateVerbs, nil), true, true},
		"ours, that the cache has not yet":  {service(templates, groupVMTemplateVerbs, nil), service(templates, groupVMTemplateVerbs, ours), true, false},
		"of a group that none but we serve": {service(machines, "subresources.kubevirt.io", nil), service(machines, "subresources.kubevirt.io", nil), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			cached, live := fake.NewClientBuilder().WithScheme(scheme.New()), fake.NewClientBuilder().WithScheme(scheme.New())
			if c.server {
				cached = cached.WithObjects(rolledOut)
			}
			if c.live != nil {
				live = live.WithObjects(c.live)
			}
			r := &Reconciler{Client: cached.Build(), Reader: live.Build(), Options: Options{Namespace: "slipway"}}
			if got, err := r.premature(t.Context(), c.object); err != nil || got != c.want {
				t.Errorf("left alone: %t, %v; want %t", got, err, c.want)
			}
		})
	}
}
