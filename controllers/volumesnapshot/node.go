package volumesnapshot

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// nodeOf returns the one node that a volume is bound to, "" when there are several or it is bound to none.
func (r *Reconciler) nodeOf(ctx context.Context, volume *corev1.PersistentVolume) (string, error) {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return "", nil
	}
	var nodes corev1.NodeList
	if err := r.cluster.List(ctx, &nodes); err != nil {
		return "", fmt.Errorf("listing nodes: %w", err)
	}
	var found []string
	for i := range nodes.Items {
		reaches, err := selects(volume.Spec.NodeAffinity.Required, &nodes.Items[i])
		if err != nil {
			return "", fail(reasonCreationFailed, "spec.nodeAffinity of volume %s: %v", volume.Name, err)
		}
		if reaches {
			found = append(found, nodes.Items[i].Name)
		}
	}
	switch len(found) {
	case 0:
		return "", fail(reasonCreationFailed, "volume %s is on a node that the cluster does not have: bring the node back", volume.Name)
	case 1:
		return found[0], nil
	default:
		return "", nil
	}
}

// selects says whether any term of selector fits node.
func selects(selector *corev1.NodeSelector, node *corev1.Node) (bool, error) {
	for _, term := range selector.NodeSelectorTerms {
		fits := len(term.MatchExpressions)+len(term.MatchFields) > 0
		for _, field := range term.MatchFields { // Kubernetes knows no field but the name
			in := slices.Contains(field.Values, node.Name)
			fits = fits && in == (field.Operator == corev1.NodeSelectorOpIn)
		}
		for _, expression := range term.MatchExpressions {
			requirement, err := labels.NewRequirement(expression.Key, operators[expression.Operator], expression.Values)
			if err != nil {
				return false, fmt.Errorf("reading the requirement of label %s: %w", expression.Key, err)
			}
			fits = fits && requirement.Matches(labels.Set(node.Labels))
		}
		if fits {
			return true, nil
		}
	}
	return false, nil
}

var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}
