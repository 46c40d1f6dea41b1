package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindRequest is the kind that asks for a template.
const KindRequest = "VirtualMachineTemplateRequest"

const (
	// LabelRequest on what is made for a request is the request's uid.
	LabelRequest = "template.kubevirt.io/RequestUID"
	// FinalizerRequest is on a request while something may have to be removed with it.
	FinalizerRequest = "template.kubevirt.io/SnapshotCleanup"
)

// Conditions of a request, and their reasons.
const (
	ConditionReady       = "Ready"
	ConditionProgressing = "Progressing"

	ReasonReconciled  = "Reconciled"
	ReasonReconciling = "Reconciling"
	ReasonWaiting     = "Waiting"
	ReasonFailed      = "Failed"
)

// VirtualMachineTemplateRequest asks for a VirtualMachineTemplate that is made of a
// VirtualMachine, with copies of its disks.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type VirtualMachineTemplateRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualMachineTemplateRequestSpec   `json:"spec"`
	Status VirtualMachineTemplateRequestStatus `json:"status,omitempty"`
}

// VirtualMachineTemplateRequestList is a list of VirtualMachineTemplateRequest objects.
//
// +kubebuilder:object:root=true
type VirtualMachineTemplateRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineTemplateRequest `json:"items"`
}

// VirtualMachineTemplateRequestSpec is of what the template is made, and how it is named.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable"
type VirtualMachineTemplateRequestSpec struct {
	// virtualMachineRef is the VirtualMachine that the template is made of.
	VirtualMachineRef VirtualMachineReference `json:"virtualMachineRef"`

	// templateName is the name of the template; that of the request when left out.
	// +optional
	TemplateName string `json:"templateName,omitempty"`

	// templateLabels are labels of the template.
	// +optional
	TemplateLabels map[string]string `json:"templateLabels,omitempty"`

	// ttlSecondsAfterFinished is how long the request stays once its template is ready; for ever
	// when left out. One that has failed stays.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// VirtualMachineReference names a VirtualMachine.
type VirtualMachineReference struct {
	// namespace is the VirtualMachine's.
	Namespace string `json:"namespace"`

	// name is the VirtualMachine's.
	Name string `json:"name"`
}

// VirtualMachineTemplateRequestStatus says how far the request is.
type VirtualMachineTemplateRequestStatus struct {
	// conditions say whether the template is there (type Ready), and whether it is being
	// made (type Progressing).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// templateRef is the template, once it is made.
	// +optional
	TemplateRef *corev1.LocalObjectReference `json:"templateRef,omitempty"`
}
