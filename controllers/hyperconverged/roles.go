package hyperconverged

import (
	"context"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"
)

// What the roles of users are known by, and by which labels the cluster's own roles have what they have.
const (
	userRoles      = "kubevirt.io:"
	aggregateLabel = "rbac.authorization.k8s.io/aggregate-to-"
)

// aggregateRoles has the cluster's own roles admin, edit and view have what the roles of users of virtual machines have,
// unless HyperConverged, or else the KubeVirt object, says that users are given these by hand.
func (r *Reconciler) aggregateRoles(_ context.Context, s *scope) error {
	strategy := s.hco.Spec.Virtualization.RoleAggregationStrategy
	if strategy == nil && s.kubevirt != nil {
		strategy = s.kubevirt.Spec.Configuration.RoleAggregationStrategy
	}
	aggregate(s.wanted, strategy == nil || *strategy != virtv1.RoleAggregationStrategyManual)
	return nil
}

// aggregate writes into the roles of users among objects whether they are aggregated.
func aggregate(objects []*unstructured.Unstructured, yes bool) {
	for _, object := range objects {
		if object.GetKind() != "ClusterRole" || !strings.HasPrefix(object.GetName(), userRoles) {
			continue
		}
		labels := object.GetLabels()
		for key := range labels {
			if strings.HasPrefix(key, aggregateLabel) {
				labels[key] = strconv.FormatBool(yes)
			}
		}
		object.SetLabels(labels)
	}
}
