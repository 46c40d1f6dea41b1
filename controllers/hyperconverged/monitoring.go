package hyperconverged

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/catalog/monitoring"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
)

// groupMonitoring is that of the Prometheus operator's kinds, groupPopulators that of the kind by which
// a cluster knows who fills claims.
const (
	groupMonitoring = "monitoring.coreos.com"
	groupPopulators = "populator.storage.k8s.io"
)

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

// servedHere leaves out what only a cluster with the Prometheus operator, or with populators, knows. Their definitions
// tell, not the client's memory of what is served, for they may go as well as come; their events
// bring the pass that sees it.
func (r *Reconciler) servedHere(ctx context.Context, wanted []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var served []*unstructured.Unstructured
	for _, object := range wanted {
		kind := object.GroupVersionKind()
		if kind.Group == groupMonitoring || kind.Group == groupPopulators {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			err := r.Client.Get(ctx, client.ObjectKey{Name: strings.ToLower(kind.Kind) + "s." + kind.Group}, definition)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("looking for the definition of %s: %w", kind.Kind, err)
			}
			if err != nil || definition.DeletionTimestamp != nil || !established(definition) {
				continue
			}
		}
		served = append(served, object)
	}
	return served, nil
}
