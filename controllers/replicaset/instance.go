package replicaset

import (
	"cmp"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
)

// instance makes one more instance of set, whose name the API server generates.
func instance(set *virtv1.VirtualMachineInstanceReplicaSet, selector labels.Selector) (*virtv1.VirtualMachineInstance, error) {
	if set.Spec.Template == nil {
		return nil, errors.New("missing virtual machine template")
	}
	template := set.Spec.Template.DeepCopy()
	// It would not count, and the next pass would make another, and so on.
	if !selector.Matches(labels.Set(template.ObjectMeta.Labels)) {
		return nil, fmt.Errorf("selector does not match labels: the template's are %q, the selector is %q; make spec.template.metadata.labels match it",
			labels.Set(template.ObjectMeta.Labels), selector)
	}
	return &virtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    cmp.Or(template.ObjectMeta.Name, template.ObjectMeta.GenerateName, set.Name),
			Namespace:       set.Namespace,
			Labels:          template.ObjectMeta.Labels,
			Annotations:     template.ObjectMeta.Annotations,
			OwnerReferences: []metav1.OwnerReference{ownedBy(set)},
			Finalizers:      []string{virtv1.VirtualMachineInstanceFinalizer},
		},
		Spec: template.Spec,
	}, nil
}

// ownedBy is the reference by which an instance is set's.
func ownedBy(set *virtv1.VirtualMachineInstanceReplicaSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, virtv1.VirtualMachineInstanceReplicaSetGroupVersionKind)
}
