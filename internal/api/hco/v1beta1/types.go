package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

// HyperConvergedSpec is what is wanted of the installation.
type HyperConvergedSpec struct {
	// Infra configures virt-api and virt-controller.
	// +optional
	Infra HyperConvergedConfig `json:"infra,omitempty"`

	// Workloads configures virt-handler, and so limits the nodes on which virtual machines run.
	// +optional
	Workloads HyperConvergedConfig `json:"workloads,omitempty"`

	// UninstallStrategy says what happens when this object is deleted while virtual machines
	// exist. BlockUninstallIfWorkloadsExist, the default and only one, refuses the deletion.
	// +kubebuilder:default=BlockUninstallIfWorkloadsExist
	// +optional
	UninstallStrategy hcov1.UninstallStrategy `json:"uninstallStrategy,omitempty"`

	// LogVerbosityConfig sets how much the components log.
	// +optional
	LogVerbosityConfig hcov1.LogVerbosityConfig `json:"logVerbosityConfig,omitempty"`

	// WorkloadUpdateStrategy says what becomes of virtual machines that run with the launcher of
	// an earlier version.
	// +optional
	WorkloadUpdateStrategy *hcov1.WorkloadUpdateStrategy `json:"workloadUpdateStrategy,omitempty"`

	// VirtualMachineOptions turns off what all virtual machines have.
	// +optional
	VirtualMachineOptions *hcov1.MachineSwitches `json:"virtualMachineOptions,omitempty"`

	// DefaultCPUModel is the model of the processor of virtual machines that name none; the node's own
	// when left out.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	DefaultCPUModel *string `json:"defaultCPUModel,omitempty"`

	// DefaultRuntimeClass is the RuntimeClass of the pods of virtual machines; the nodes' default when
	// left out.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	DefaultRuntimeClass *string `json:"defaultRuntimeClass,omitempty"`

	// RoleAggregationStrategy says whether the cluster's own roles admin, edit and view have what those of
	// users of virtual machines have: AggregateToDefault, as when it is left out, or Manual.
	// +kubebuilder:validation:Enum=AggregateToDefault;Manual
	// +optional
	RoleAggregationStrategy *virtv1.RoleAggregationStrategy `json:"roleAggregationStrategy,omitempty"`

	// TektonNamespaces names the namespaces that get the provisioning tasks and pipelines with
	// their service accounts. A namespace that does not exist is waited for; none is created.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +optional
	TektonNamespaces []string `json:"tektonNamespaces,omitempty"`

	// TektonTasksNamespace names one more namespace that gets the tasks alone.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +optional
	TektonTasksNamespace string `json:"tektonTasksNamespace,omitempty"`

	// TektonPipelinesNamespace names one more namespace that gets the pipelines alone. They find
	// their tasks in their own namespace, so it is mostly the same one.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +optional
	TektonPipelinesNamespace string `json:"tektonPipelinesNamespace,omitempty"`

	// InstancetypeConfig says how virtual machines have their instance types and preferences.
	// +optional
	InstancetypeConfig *virtv1.InstancetypeConfiguration `json:"instancetypeConfig,omitempty"`

	// CommonInstancetypesDeployment says whether the common instance types and preferences are
	// installed. They are when it is left out.
	// +optional
	CommonInstancetypesDeployment *virtv1.CommonInstancetypesDeployment `json:"commonInstancetypesDeployment,omitempty"`

	// EnableCommonBootImageImport says whether the common boot images are imported and kept new. They
	// are when it is left out.
	// +optional
	EnableCommonBootImageImport *bool `json:"enableCommonBootImageImport,omitempty"`

	// CommonBootImageNamespace is where the common boot images are imported; kubevirt-os-images when
	// left out. Another namespace than that is waited for; it is not created.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	CommonBootImageNamespace *string `json:"commonBootImageNamespace,omitempty"`

	// DataImportCronTemplates are further boot sources. One with the name of a common boot image
	// stands for that, or leaves it out by an annotation.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	DataImportCronTemplates []hcov1.DataImportCronTemplate `json:"dataImportCronTemplates,omitempty"`

	// FilesystemOverhead is the part of a file system's size that a disk in it cannot have, from 0 to
	// below 1, for all storage classes and for each; 0.06 when left out.
	// +optional
	FilesystemOverhead *cdiv1.FilesystemOverhead `json:"filesystemOverhead,omitempty"`

	// ScratchSpaceStorageClass is the class of scratch space that clients read in the CDIConfig. What
	// Slipway fills needs none.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ScratchSpaceStorageClass *string `json:"scratchSpaceStorageClass,omitempty"`

	// StorageImport configures imports.
	// +optional
	StorageImport *hcov1.StorageImport `json:"storageImport,omitempty"`

	// ResourceRequirements is what pods ask for and may have.
	// +optional
	ResourceRequirements ResourceRequirements `json:"resourceRequirements,omitempty"`

	// CertConfig says how long the certificates of Slipway's servers are valid.
	// +optional
	CertConfig *hcov1.CertConfig `json:"certConfig,omitempty"`

	// TLSSecurityProfile says which TLS Slipway's servers speak. They speak TLS 1.2 and newer when it is left out.
	// +optional
	TLSSecurityProfile *cdiv1.TLSSecurityProfile `json:"tlsSecurityProfile,omitempty"`
}

// ResourceRequirements is what pods ask for and may have.
type ResourceRequirements struct {
	// StorageWorkloads is of the pods that fill disks, in the place of the defaults.
	// +optional
	StorageWorkloads *corev1.ResourceRequirements `json:"storageWorkloads,omitempty"`

	// AutoCPULimitNamespaceLabelSelector selects namespaces in which the pods of virtual machines are
	// held to a processor for each virtual CPU, unless they name a limit or have dedicated processors.
	// +optional
	AutoCPULimitNamespaceLabelSelector *metav1.LabelSelector `json:"autoCPULimitNamespaceLabelSelector,omitempty"`
}

// HyperConvergedConfig configures a class of components.
type HyperConvergedConfig struct {
	// NodePlacement says on which nodes they run.
	// +optional
	NodePlacement *sdkapi.NodePlacement `json:"nodePlacement,omitempty"`
}

// HyperConverged is the flat shape of a v1 HyperConverged.
//
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'kubevirt-hyperconverged'",message="metadata.name: there is one HyperConverged object, and it is named kubevirt-hyperconverged"
type HyperConverged struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HyperConvergedSpec         `json:"spec,omitempty"`
	Status hcov1.HyperConvergedStatus `json:"status,omitempty"`
}

// HyperConvergedList is a list of HyperConverged objects.
//
// +kubebuilder:object:root=true
type HyperConvergedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []HyperConverged `json:"items"`
}
