// Package verbs is what is sent to and got from subresources.template.kubevirt.io: what is done with a
// VirtualMachineTemplate. Its versions v1beta1 and v1alpha1 have the same fields. Nothing of it is stored.
package verbs

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
)

// Group is the API group.
const Group = "subresources.template.kubevirt.io"

// Kinds of the group.
const (
	KindProcessOptions = "ProcessOptions"
	KindProcessed      = "ProcessedVirtualMachineTemplate"
)

// Versions are those of the group, the preferred first.
var Versions = []schema.GroupVersion{{Group: Group, Version: "v1beta1"}, {Group: Group, Version: "v1alpha1"}}

// ProcessOptions say how a VirtualMachineTemplate is filled in.
type ProcessOptions struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Parameters are the values of parameters, by their names. One that is left out has what the template says.
	Parameters map[string]string `json:"parameters,omitempty"`
}

// SwaggerDoc describes the type and its fields.
func (ProcessOptions) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "ProcessOptions say how a VirtualMachineTemplate is filled in.",
		"parameters": "parameters are the values of parameters, by their names. One that is left out has what the template says.",
	}
}

// ProcessedVirtualMachineTemplate is a VirtualMachineTemplate that was filled in.
type ProcessedVirtualMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// TemplateRef names the template.
	TemplateRef *corev1.ObjectReference `json:"templateRef,omitempty"`
	// VirtualMachine is the VirtualMachine: as the template says it, or as it was created.
	VirtualMachine *virtv1.VirtualMachine `json:"virtualMachine"`
	// Message is what the template tells its user.
	Message string `json:"message,omitempty"`
}

// SwaggerDoc describes the type and its fields.
func (ProcessedVirtualMachineTemplate) SwaggerDoc() map[string]string {
	return map[string]string{
		"":               "ProcessedVirtualMachineTemplate is a VirtualMachineTemplate that was filled in.",
		"templateRef":    "templateRef names the template.",
		"virtualMachine": "virtualMachine is the VirtualMachine: as the template says it, or as it was created.",
		"message":        "message is what the template tells its user.",
	}
}
