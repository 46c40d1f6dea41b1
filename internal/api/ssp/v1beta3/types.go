package v1beta3

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
)

// Name is that of the one SSP object, which HyperConverged creates.
const Name = "ssp-kubevirt-hyperconverged"

// AnnotationPaused on the SSP object, with the value "true", makes the operator leave tasks
// and pipelines as they are.
const AnnotationPaused = "kubevirt.io/operator.paused"

// SSPSpec says which namespaces get tasks and pipelines. What of the field's spec Slipway does
// not act on yet is refused.
//
// +kubebuilder:validation:XValidation:rule="!has(self.commonTemplates)",fieldPath=".commonTemplates",message="Slipway does not act on it yet: leave it out; templates are applied as objects"
// +kubebuilder:validation:XValidation:rule="!has(self.templateValidator)",fieldPath=".templateValidator",message="Slipway does not act on it yet: leave it out; virt-api validates virtual machines"
// +kubebuilder:validation:XValidation:rule="!has(self.tlsSecurityProfile)",fieldPath=".tlsSecurityProfile",message="Slipway does not act on it yet: leave it out; webhooks are served with TLS 1.2 or later"
// +kubebuilder:validation:XValidation:rule="!has(self.vmConsoleProxy)",fieldPath=".vmConsoleProxy",message="Slipway does not act on it yet: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.tokenGenerationService)",fieldPath=".tokenGenerationService",message="Slipway does not act on it yet: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.cluster)",fieldPath=".cluster",message="Slipway does not act on it yet: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.enableMultipleArchitectures) || !self.enableMultipleArchitectures",fieldPath=".enableMultipleArchitectures",message="Slipway does not act on true yet: leave it out"
type SSPSpec struct {
	// tektonTasks says which namespaces get the tasks, with their service accounts and roles.
	// +optional
	TektonTasks *Tekton `json:"tektonTasks,omitempty"`

	// tektonPipelines says which namespaces get the pipelines. A pipeline finds its tasks in its
	// own namespace.
	// +optional
	TektonPipelines *Tekton `json:"tektonPipelines,omitempty"`

	// featureGates turn the deployment of tasks and pipelines on.
	// +optional
	FeatureGates *FeatureGates `json:"featureGates,omitempty"`

	// commonTemplates is refused for now.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	CommonTemplates *runtime.RawExtension `json:"commonTemplates,omitempty"`

	// templateValidator is refused for now.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	TemplateValidator *runtime.RawExtension `json:"templateValidator,omitempty"`

	// tlsSecurityProfile is refused for now.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	TLSSecurityProfile *runtime.RawExtension `json:"tlsSecurityProfile,omitempty"`

	// commonInstancetypes says where the common instance types and preferences come from: from the operator itself.
	// +optional
	CommonInstancetypes *CommonInstancetypes `json:"commonInstancetypes,omitempty"`

	// vmConsoleProxy is refused for now.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	VMConsoleProxy *runtime.RawExtension `json:"vmConsoleProxy,omitempty"`

	// tokenGenerationService is refused for now.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	TokenGenerationService *runtime.RawExtension `json:"tokenGenerationService,omitempty"`

	// cluster is refused for now.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Cluster *runtime.RawExtension `json:"cluster,omitempty"`

	// enableMultipleArchitectures may only be false for now.
	// +optional
	EnableMultipleArchitectures *bool `json:"enableMultipleArchitectures,omitempty"`
}

// Tekton says which namespaces get something. With neither field it is the SSP object's own.
type Tekton struct {
	// namespace that gets it.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// namespaces that get it too. The field has one namespace only.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
}

// In returns the namespaces that get something, each once; own is that of the SSP object.
func (t *Tekton) In(own string) []string {
	if t == nil || t.Namespace == "" && len(t.Namespaces) == 0 {
		return []string{own}
	}
	var all []string
	if t.Namespace != "" {
		all = append(all, t.Namespace)
	}
	for _, namespace := range t.Namespaces {
		if namespace != t.Namespace {
			all = append(all, namespace)
		}
	}
	return all
}

// CommonInstancetypes says where the common instance types and preferences come from.
//
// +kubebuilder:validation:XValidation:rule="!has(self.url)",fieldPath=".url",message="Slipway ships its own: leave it out; others are applied as objects"
type CommonInstancetypes struct {
	// url is refused: nothing is fetched.
	// +optional
	URL *string `json:"url,omitempty"`
}

// FeatureGates turn parts on.
//
// +kubebuilder:validation:XValidation:rule="!has(self.deployVmConsoleProxy) || !self.deployVmConsoleProxy",fieldPath=".deployVmConsoleProxy",message="Slipway does not act on true yet: leave it out"
type FeatureGates struct {
	// deployTektonTaskResources deploys tasks and pipelines. Once it is false again they are removed.
	// +optional
	DeployTektonTaskResources bool `json:"deployTektonTaskResources,omitempty"`

	// deployCommonInstancetypes installs the common instance types and preferences, unless it is
	// false or HyperConverged says so.
	// +optional
	DeployCommonInstancetypes *bool `json:"deployCommonInstancetypes,omitempty"`

	// deployVmConsoleProxy may only be false for now.
	// +optional
	DeployVMConsoleProxy bool `json:"deployVmConsoleProxy,omitempty"`
}

// SSPStatus says whether tasks and pipelines are where they are asked for.
type SSPStatus struct {
	sdkapi.Status `json:",inline"`

	// paused is true while the operator leaves tasks and pipelines as they are.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// observedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// SSP says which namespaces get the provisioning tasks and pipelines. HyperConverged creates
// the one object and keeps its spec.
//
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'ssp-kubevirt-hyperconverged'",message="metadata.name: there is one SSP object, ssp-kubevirt-hyperconverged, and HyperConverged creates it"
type SSP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SSPSpec   `json:"spec,omitempty"`
	Status SSPStatus `json:"status,omitempty"`
}

// SSPList is a list of SSP objects.
//
// +kubebuilder:object:root=true
type SSPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SSP `json:"items"`
}
