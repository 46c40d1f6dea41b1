package pool

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// operators are those of node selectors, as selectors of labels have them.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

// requirements is the selector that all of given make, of the labels that a VM's nodeSelector asks for.
func requirements(given []corev1.NodeSelectorRequirement) (labels.Selector, error) {
	all := labels.NewSelector()
	for i := range given {
		one, err := requirement(given[i])
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		all = all.Add(*one)
	}
	return all, nil
}

// CheckRequirement says what is wrong with a requirement of a selection policy.
func CheckRequirement(given corev1.NodeSelectorRequirement) error {
	_, err := requirement(given)
	return err
}

func requirement(given corev1.NodeSelectorRequirement) (*labels.Requirement, error) {
	operator, known := operators[given.Operator]
	if !known {
		return nil, fmt.Errorf("operator is %q; use In, NotIn, Exists, DoesNotExist, Gt or Lt", given.Operator)
	}
	made, err := labels.NewRequirement(given.Key, operator, given.Values)
	if err != nil {
		return nil, fmt.Errorf("reading a node selector requirement: %w", err)
	}
	return made, nil
}
