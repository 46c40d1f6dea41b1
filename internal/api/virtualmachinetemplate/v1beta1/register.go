package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "template.kubevirt.io", Version: "v1beta1"}

// AddToScheme registers the package's kinds with scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&VirtualMachineTemplate{}, &VirtualMachineTemplateList{}, &VirtualMachineTemplateRequest{}, &VirtualMachineTemplateRequestList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
