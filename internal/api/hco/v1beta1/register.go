package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "hco.kubevirt.io", Version: "v1beta1"}

// AddToScheme registers the package's types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &HyperConverged{}, &HyperConvergedList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
