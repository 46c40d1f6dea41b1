//go:build integration

package hyperconverged

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// multipliesComponents says in the KubeVirt object how many pods components have, and takes it back.
func multipliesComponents(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	for _, step := range []struct {
		infra string
		want  int32
	}{{`{"replicas":2}`, 2}, {`null`, 1}} {
		change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"infra":`+step.infra+`}}`))
		if err := c.Patch(t.Context(), theKubeVirt(options), change); err != nil {
			t.Fatal(err)
		}
		for _, component := range []string{"virt-api", "virt-controller", "virt-exportproxy"} {
			key := client.ObjectKey{Namespace: options.Namespace, Name: component}
			wait(t, c, &appsv1.DeploymentList{}, key, "has as many pods as are asked for", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == step.want })
		}
	}
}
