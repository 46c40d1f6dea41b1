package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// VirtualMachineTemplate is a VirtualMachine with parameters, which a task or another
// client fills in.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type VirtualMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualMachineTemplateSpec   `json:"spec"`
	Status VirtualMachineTemplateStatus `json:"status,omitempty"`
}

// VirtualMachineTemplateList is a list of VirtualMachineTemplate objects.
//
// +kubebuilder:object:root=true
type VirtualMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineTemplate `json:"items"`
}

// VirtualMachineTemplateSpec is the VirtualMachine and its parameters.
type VirtualMachineTemplateSpec struct {
	// virtualMachine is the VirtualMachine, in which ${NAME} stands for a parameter. A fixed
	// namespace is dropped; one with a parameter in it stays.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	VirtualMachine *runtime.RawExtension `json:"virtualMachine"`

	// parameters are what ${NAME} in the VirtualMachine may refer to.
	// +optional
	Parameters []Parameter `json:"parameters,omitempty"`

	// message is for the user of the new VirtualMachine; parameters are filled in.
	// +optional
	Message string `json:"message,omitempty"`
}

// Parameter is a value that is put in where the VirtualMachine refers to it.
type Parameter struct {
	// name is what ${NAME} refers to.
	Name string `json:"name"`

	// displayName is the name that a user interface shows.
	// +optional
	DisplayName string `json:"displayName,omitempty"`

	// description says what the parameter is for.
	// +optional
	Description string `json:"description,omitempty"`

	// value is the value when none is given.
	// +optional
	Value string `json:"value,omitempty"`

	// generate makes a value from the field from, when there is none.
	// +kubebuilder:validation:Enum=expression
	// +optional
	Generate string `json:"generate,omitempty"`

	// from is what generate works on: text and terms such as [a-zA-Z0-9]{8}.
	// +kubebuilder:validation:Pattern=`\[([a-zA-Z0-9\-\\]+)\](\{(\w+)\})`
	// +optional
	From string `json:"from,omitempty"`

	// required says that there must be a value in the end.
	// +optional
	Required bool `json:"required,omitempty"`
}

// VirtualMachineTemplateStatus is written by controllers that check templates.
type VirtualMachineTemplateStatus struct {
	// conditions say whether the template can be used (type Ready).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
