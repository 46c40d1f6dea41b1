//go:build integration

package hyperconverged

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A cluster gets the Prometheus operator after Slipway: what is for it is installed then.
func installsRules(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	key := client.ObjectKey{Namespace: options.Namespace, Name: "prometheus-kubevirt-rules"}
	kinds := map[string]string{"prometheusrules": "PrometheusRule", "servicemonitors": "ServiceMonitor"}
	for _, kind := range kinds {
		if err := c.Get(t.Context(), key, monitoringObject(kind)); !meta.IsNoMatchError(err) {
			t.Fatalf("%s is there before its definition: %v", kind, err)
		}
	}
	define(t, c, groupMonitoring, kinds)
	for _, kind := range kinds {
		found := monitoringObject(kind)
		for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			err := c.Get(t.Context(), key, found)
			if err == nil {
				break
			}
			if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) || time.Now().After(deadline) {
				t.Fatalf("waiting for the %s: %v", kind, err)
			}
		}
		if found.GetLabels()[LabelComponent] != "monitoring" || found.Object["spec"] == nil {
			t.Errorf("it is %v", found.Object)
		}
	}
}

// The Prometheus operator goes again: nothing waits for its kinds.
func goesOnWithoutRules(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	for _, plural := range []string{"prometheusrules", "servicemonitors"} {
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + groupMonitoring}}
		if err := c.Delete(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(patience); !apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(definition), definition)); {
			if time.Now().After(deadline) {
				t.Fatalf("waiting for the definition of %s to be gone", plural)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: options.Namespace, Name: "kubevirt-prometheus-metrics"}}
	if err := c.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	wait(t, c, &corev1.ServiceList{}, client.ObjectKeyFromObject(service), "the Service again", func(*corev1.Service) bool { return true })
	waitHCO(t, c, options, "ReconcileComplete", metav1.ConditionTrue, "")
}

func monitoringObject(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: groupMonitoring, Version: "v1", Kind: kind})
	return object
}
