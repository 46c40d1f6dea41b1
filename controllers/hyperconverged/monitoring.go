package hyperconverged

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-vm/slipway/catalog/monitoring"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
)

// groupMonitoring is that of the Prometheus operator's kinds.
const groupMonitoring = "monitoring.coreos.com"

// alertRules are the rules for Prometheus, which are no template: they have braces of their own.
func alertRules(namespace string) ([]*unstructured.Unstructured, error) {
	rules, err := render.Decode(monitoring.Rules)
	if err != nil {
		return nil, fmt.Errorf("reading the rules for Prometheus: %w", err)
	}
	for _, rule := range rules {
		rule.SetNamespace(namespace)
	}
	return rules, nil
}

// servedHere leaves out what only a cluster with the Prometheus operator knows. Where that comes
// later, the event of its definitions brings the pass that installs it.
func (r *Reconciler) servedHere(wanted []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(wanted, func(object *unstructured.Unstructured) bool {
		kind := object.GroupVersionKind()
		if kind.Group != groupMonitoring {
			return false
		}
		_, err := r.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}, kind.Version)
		return err != nil
	})
}
