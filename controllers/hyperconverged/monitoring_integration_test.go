//go:build integration

package hyperconverged

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

func monitoringObject(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: groupMonitoring, Version: "v1", Kind: kind})
	return object
}
