package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
)

// UninstallStrategy says what happens to workloads when the HyperConverged object is deleted.
// +kubebuilder:validation:Enum=BlockUninstallIfWorkloadsExist
type UninstallStrategy string

// BlockUninstall refuses the removal while virtual machines exist. It is the only
// strategy: Slipway never deletes users' machines on the way out.
const BlockUninstall UninstallStrategy = "BlockUninstallIfWorkloadsExist"

// System health, a summary of the conditions.
const (
	HealthHealthy = "healthy"
	HealthWarning = "warning"
	HealthError   = "error"
)

// Annotations by which the field patches the objects that HyperConverged creates: a JSON
// patch (RFC 6902), applied to the KubeVirt, CDI or SSP object before it is written.
const (
	AnnotationKubeVirtPatch = "kubevirt.kubevirt.io/jsonpatch"
	AnnotationCDIPatch      = "containerizeddataimporter.kubevirt.io/jsonpatch"
	AnnotationSSPPatch      = "ssp.kubevirt.io/jsonpatch"
)

// HyperConvergedSpec is what is wanted of the installation.
type HyperConvergedSpec struct {
	// Deployment configures how Slipway's own components run.
	// +optional
	Deployment Deployment `json:"deployment,omitempty"`

	// Virtualization configures how virtual machines run.
	// +optional
	Virtualization Virtualization `json:"virtualization,omitzero"`

	// WorkloadSources configures what workloads are made from.
	// +optional
	WorkloadSources WorkloadSources `json:"workloadSources,omitempty"`

	// Storage configures the disks of virtual machines, and what fills them.
	// +optional
	Storage Storage `json:"storage,omitzero"`

	// Security configures how Slipway's own parts are spoken to.
	// +optional
	Security Security `json:"security,omitzero"`
}

// Security configures how Slipway's own parts are spoken to.
type Security struct {
	// CertConfig says how long the certificates of Slipway's servers are valid.
	// +optional
	CertConfig *CertConfig `json:"certConfig,omitempty"`

	// TLSSecurityProfile says which TLS Slipway's servers speak. They speak TLS 1.2 and newer when it is left out.
	// +optional
	TLSSecurityProfile *cdiv1.TLSSecurityProfile `json:"tlsSecurityProfile,omitempty"`
}

// CertConfig says how long certificates are valid, each at least ten minutes, and how long before their end they are
// renewed, half of that when it is left out.
type CertConfig struct {
	// CA is of authorities; 168h when left out.
	// +optional
	CA *cdiv1.CertConfig `json:"ca,omitempty"`

	// Server is of servers, and of clients that are known by certificates; 24h when left out, and not longer than
	// their authority.
	// +optional
	Server *cdiv1.CertConfig `json:"server,omitempty"`
}

// Storage configures the disks of virtual machines, and what fills them.
type Storage struct {
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
	StorageImport *StorageImport `json:"storageImport,omitempty"`

	// WorkloadResourceRequirements is what the pods that fill disks ask for and may have, in the place
	// of the defaults.
	// +optional
	WorkloadResourceRequirements *corev1.ResourceRequirements `json:"workloadResourceRequirements,omitempty"`
}

// StorageImport configures imports.
type StorageImport struct {
	// InsecureRegistries are registries, as host or host:port, whose certificates are not checked, and
	// which are spoken to without TLS when they have none.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +optional
	InsecureRegistries []string `json:"insecureRegistries,omitempty"`
}

// Virtualization configures how virtual machines run.
type Virtualization struct {
	// WorkloadUpdateStrategy says what becomes of virtual machines that run with the launcher of
	// an earlier version.
	// +optional
	WorkloadUpdateStrategy *WorkloadUpdateStrategy `json:"workloadUpdateStrategy,omitempty"`

	// VirtualMachineOptions says what all virtual machines have.
	// +optional
	VirtualMachineOptions *VirtualMachineOptions `json:"virtualMachineOptions,omitempty"`

	// RoleAggregationStrategy says whether the cluster's own roles admin, edit and view have what those of
	// users of virtual machines have: AggregateToDefault, as when it is left out, or Manual.
	// +kubebuilder:validation:Enum=AggregateToDefault;Manual
	// +optional
	RoleAggregationStrategy *virtv1.RoleAggregationStrategy `json:"roleAggregationStrategy,omitempty"`

	// AutoCPULimitNamespaceLabelSelector selects namespaces in which the pods of virtual machines are
	// held to a processor for each virtual CPU, unless they name a limit or have dedicated processors.
	// +optional
	AutoCPULimitNamespaceLabelSelector *metav1.LabelSelector `json:"autoCPULimitNamespaceLabelSelector,omitempty"`
}

// VirtualMachineOptions says what all virtual machines have, from their next start.
type VirtualMachineOptions struct {
	MachineSwitches `json:",inline"`

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
}

// MachineSwitches turn off what all virtual machines have.
type MachineSwitches struct {
	// DisableFreePageReporting has guests keep the memory that they freed, instead of handing it back
	// to the node.
	// +optional
	DisableFreePageReporting *bool `json:"disableFreePageReporting,omitempty"`

	// DisableSerialConsoleLog keeps no log of the serial console, but for virtual machines with
	// logSerialConsole: true.
	// +optional
	DisableSerialConsoleLog *bool `json:"disableSerialConsoleLog,omitempty"`
}

// WorkloadUpdateStrategy says what becomes of virtual machines that run with the launcher of an
// earlier version.
type WorkloadUpdateStrategy struct {
	// WorkloadUpdateMethods says how they get the present launcher. Evict shuts them down in
	// order, and they start again. When the list is empty or left out they get it at their next
	// start.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	WorkloadUpdateMethods []virtv1.WorkloadUpdateMethod `json:"workloadUpdateMethods,omitempty"`

	// BatchEvictionSize is how many are shut down at once; 10 when left out.
	// +kubebuilder:validation:Minimum=1
	// +optional
	BatchEvictionSize *int `json:"batchEvictionSize,omitempty"`

	// BatchEvictionInterval is the time between two batches; one minute when left out.
	// +optional
	BatchEvictionInterval *metav1.Duration `json:"batchEvictionInterval,omitempty"`
}

// Deployment configures how Slipway's own components run.
type Deployment struct {
	// NodePlacements says on which nodes the components run.
	// +optional
	NodePlacements NodePlacements `json:"nodePlacements,omitempty"`

	// UninstallStrategy says what happens when this object is deleted while virtual machines
	// exist. BlockUninstallIfWorkloadsExist, the default and only one, refuses the deletion.
	// +kubebuilder:default=BlockUninstallIfWorkloadsExist
	// +optional
	UninstallStrategy UninstallStrategy `json:"uninstallStrategy,omitempty"`

	// LogVerbosityConfig sets how much the components log.
	// +optional
	LogVerbosityConfig LogVerbosityConfig `json:"logVerbosityConfig,omitempty"`
}

// NodePlacements says on which nodes the components run.
type NodePlacements struct {
	// Infra places virt-api and virt-controller.
	// +optional
	Infra *sdkapi.NodePlacement `json:"infra,omitempty"`

	// Workload places virt-handler, and so limits the nodes on which virtual machines run.
	// +optional
	Workload *sdkapi.NodePlacement `json:"workload,omitempty"`
}

// LogVerbosityConfig sets how much the components log.
type LogVerbosityConfig struct {
	// Kubevirt sets the verbosity of each component.
	// +optional
	Kubevirt LogVerbosity `json:"kubevirt,omitempty"`

	// CDI is the verbosity of what imports, uploads and clones disks: 0 says little, 9 says everything; as the components
	// do by themselves when unset.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	// +optional
	CDI *int32 `json:"cdi,omitempty"`
}

// LogVerbosity is the verbosity of each component: 0 says little, 9 says everything; 2 when unset.
type LogVerbosity struct {
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	// +optional
	VirtAPI *int32 `json:"virtAPI,omitempty"`

	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	// +optional
	VirtController *int32 `json:"virtController,omitempty"`

	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	// +optional
	VirtHandler *int32 `json:"virtHandler,omitempty"`
}

// WorkloadSources configures what workloads are made from.
type WorkloadSources struct {
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
	DataImportCronTemplates []DataImportCronTemplate `json:"dataImportCronTemplates,omitempty"`
}

// Version is the version of one part of the installation.
type Version struct {
	// Name of the part; the whole installation's is "operator".
	Name string `json:"name"`
	// Version that is fully deployed.
	Version string `json:"version"`
}

// HyperConvergedStatus is what is true of the installation.
type HyperConvergedStatus struct {
	// Conditions: ReconcileComplete, Available, Progressing, Degraded, Upgradeable and TaintedConfiguration.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// RelatedObjects lists the objects that this one created, components aside.
	// +listType=atomic
	// +optional
	RelatedObjects []corev1.ObjectReference `json:"relatedObjects,omitempty"`

	// Versions that are fully deployed.
	// +listType=map
	// +listMapKey=name
	// +optional
	Versions []Version `json:"versions,omitempty"`

	// ObservedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// SystemHealthStatus sums the conditions up: healthy, warning or error.
	// +optional
	SystemHealthStatus string `json:"systemHealthStatus,omitempty"`

	// DataImportSchedule is when the common boot images are looked for, in UTC, as five fields of cron:
	// twice a day, at a time of this installation's own.
	// +optional
	DataImportSchedule string `json:"dataImportSchedule,omitempty"`

	// DataImportCronTemplates are the boot sources that are deployed: the common ones and those of
	// the spec.
	// +listType=atomic
	// +optional
	DataImportCronTemplates []DataImportCronTemplateStatus `json:"dataImportCronTemplates,omitempty"`
}

// HyperConverged brings up and configures everything that Slipway runs in a cluster. There
// is one, kubevirt-hyperconverged, in the operator's namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'kubevirt-hyperconverged'",message="metadata.name: there is one HyperConverged object, and it is named kubevirt-hyperconverged"
type HyperConverged struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HyperConvergedSpec   `json:"spec,omitempty"`
	Status HyperConvergedStatus `json:"status,omitempty"`
}

// Hub marks this version as the one that all others are converted to.
func (*HyperConverged) Hub() {}

// HyperConvergedList is a list of HyperConverged objects.
//
// +kubebuilder:object:root=true
type HyperConvergedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []HyperConverged `json:"items"`
}
