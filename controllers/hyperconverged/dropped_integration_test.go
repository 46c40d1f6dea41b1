//go:build integration

package hyperconverged

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// TestAWebhookThatIsNoMoreGoes changes to a version with one webhook less, of both of which virt-api
// has written the certificate.
func TestAWebhookThatIsNoMoreGoes(t *testing.T) {
	c, _, options := startAPIServer(t)
	r := &Reconciler{Client: c, Reader: c, Options: options}
	both, one := configuration("a.example.com", "b.example.com"), configuration("a.example.com")
	if err := apply.Object(t.Context(), c, both.DeepCopy(), names.ManagerOperator); err != nil {
		t.Fatal(err)
	}
	live := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: both.GetName()}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(live), live); err != nil {
		t.Fatal(err)
	}
	var certificates []any
	for _, name := range []string{"a.example.com", "b.example.com"} {
		certificates = append(certificates, map[string]any{"name": name, "clientConfig": map[string]any{"caBundle": "Q0E="}})
	}
	if err := apply.Fields(t.Context(), c, live, names.ManagerAPI, map[string]any{"webhooks": certificates}); err != nil {
		t.Fatal(err)
	}
	if err := apply.Object(t.Context(), c, one.DeepCopy(), names.ManagerOperator); err == nil {
		t.Fatal("the API server drops the webhook by itself: what this test is for is not needed any more")
	}

	if err := r.dropWebhooks(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if err := apply.Object(t.Context(), c, one.DeepCopy(), names.ManagerOperator); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(live), live); err != nil {
		t.Fatal(err)
	}
	if len(live.Webhooks) != 1 || live.Webhooks[0].Name != "a.example.com" || string(live.Webhooks[0].ClientConfig.CABundle) != "CA" {
		t.Errorf("left are %+v, want a.example.com with its certificate", live.Webhooks)
	}
}

func configuration(webhooks ...string) *unstructured.Unstructured {
	var all []any
	for _, name := range webhooks {
		all = append(all, map[string]any{
			"name": name, "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
			"clientConfig": map[string]any{"service": map[string]any{"namespace": "default", "name": "nobody"}},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": "test-validator"}, "webhooks": all,
	}}
}
