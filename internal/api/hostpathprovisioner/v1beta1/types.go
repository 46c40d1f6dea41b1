package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostPathProvisioner names the directories of the nodes that hold volumes. Once one
// exists, its pools have StorageClasses and claims of them are provisioned on the node
// that the scheduler selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=hostpathprovisioners,scope=Cluster,shortName=hpp;hpps
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Available",type="string",JSONPath=".status.conditions[?(@.type=='Available')].status"
// +kubebuilder:printcolumn:name="Progressing",type="string",JSONPath=".status.conditions[?(@.type=='Progressing')].status"
// +kubebuilder:printcolumn:name="Degraded",type="string",JSONPath=".status.conditions[?(@.type=='Degraded')].status"
type HostPathProvisioner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HostPathProvisionerSpec   `json:"spec"`
	Status HostPathProvisionerStatus `json:"status,omitempty"`
}

// HostPathProvisionerList is a list of HostPathProvisioner objects.
//
// +kubebuilder:object:root=true
type HostPathProvisionerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostPathProvisioner `json:"items"`
}

// HostPathProvisionerSpec says which directories of which nodes hold volumes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.pathConfig)",fieldPath=".pathConfig",message="pathConfig is not supported: name the directory in storagePools (a name and a path) instead"
// +kubebuilder:validation:XValidation:rule="!has(self.featureGates) || size(self.featureGates) == 0",fieldPath=".featureGates",message="featureGates are not supported yet: leave the field out"
// +kubebuilder:validation:XValidation:rule="has(self.pathConfig) || (has(self.storagePools) && size(self.storagePools) > 0)",message="storagePools is empty: name at least one pool (a name and a path)"
// +kubebuilder:validation:XValidation:rule="!has(self.storagePools) || self.storagePools.all(p, self.storagePools.exists_one(q, q.path == p.path))",fieldPath=".storagePools",message="two pools have the same path: give each pool a directory of its own"
type HostPathProvisionerSpec struct {
	// imagePullPolicy is the pull policy of the driver's image. The driver is a part of
	// virt-handler and has no image of its own, so every value has the same effect.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// pathConfig is the single directory of the legacy provisioner. It is refused:
	// storagePools takes its place.
	// +optional
	PathConfig *PathConfig `json:"pathConfig,omitempty"`

	// storagePools are the directories that hold volumes. The first has the StorageClass
	// hostpath-csi, each further one hostpath-csi-<name>.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	// +optional
	StoragePools []StoragePool `json:"storagePools,omitempty"`

	// workload says which nodes have the pools. Empty: all nodes on which virt-handler runs.
	// +optional
	Workload NodePlacement `json:"workload,omitempty"`

	// featureGates turn on experimental features. None is known yet.
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +optional
	FeatureGates []string `json:"featureGates,omitempty"`
}

// StoragePool is a directory that exists under the same path on every node of the
// workload and holds volumes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.pvcTemplate)",fieldPath=".pvcTemplate",message="pvcTemplate is not supported yet: mount the storage on the nodes and give its directory as path"
type StoragePool struct {
	// name identifies the pool, as the parameter storagePool of a StorageClass.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// path is the absolute path of the directory on the node. It must exist there: a
	// directory that is made when its disk is not mounted would fill the wrong disk.
	// It cannot change, since the pool's volumes stay where they are.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/]+)+$') && !self.matches('(^|/)[.][.]?(/|$)')",message="path must be absolute and clean: no empty part, no . or .. in it"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the path of a pool cannot change: its volumes would be lost from sight; add a pool of another name"
	Path string `json:"path"`

	// pvcTemplate is the claim from which the pool's storage on each node would be made.
	// It is refused for now.
	// +optional
	PVCTemplate *corev1.PersistentVolumeClaimSpec `json:"pvcTemplate,omitempty"`
}

// PathConfig is the single directory of the legacy provisioner.
type PathConfig struct {
	// path is the directory under which volumes are made.
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Path string `json:"path,omitempty"`

	// useNamingPrefix puts the claim's name into the volume's directory name.
	// +optional
	UseNamingPrefix bool `json:"useNamingPrefix,omitempty"`
}

// NodePlacement selects nodes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.affinity)",fieldPath=".affinity",message="affinity is not supported yet: select the nodes with nodeSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.tolerations) || size(self.tolerations) == 0",fieldPath=".tolerations",message="tolerations are not supported yet: the driver runs wherever virt-handler runs, whose placement the HyperConverged object sets"
type NodePlacement struct {
	// nodeSelector are the labels that a node must have.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// affinity is refused for now.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// tolerations are refused for now.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// HostPathProvisionerStatus says whether the pools can be used.
type HostPathProvisionerStatus struct {
	// conditions are Available, Progressing and Degraded.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// operatorVersion is the version of the controller that reconciles the object.
	// +optional
	OperatorVersion string `json:"operatorVersion,omitempty"`

	// targetVersion is the version that the controller brings the object to.
	// +optional
	TargetVersion string `json:"targetVersion,omitempty"`

	// observedVersion is the version that the object has reached.
	// +optional
	ObservedVersion string `json:"observedVersion,omitempty"`

	// storagePoolStatuses say of each pool whether it can be used.
	// +listType=map
	// +listMapKey=name
	// +optional
	StoragePoolStatuses []StoragePoolStatus `json:"storagePoolStatuses,omitempty"`
}

// StoragePoolStatus says whether a pool can be used.
type StoragePoolStatus struct {
	// name is the pool's name.
	Name string `json:"name"`

	// phase is Ready once the pool has a StorageClass.
	Phase StoragePoolPhase `json:"phase"`
}

// StoragePoolPhase is how far a pool has come.
type StoragePoolPhase string

// Phases of a pool.
const (
	StoragePoolPreparing StoragePoolPhase = "Preparing"
	StoragePoolReady     StoragePoolPhase = "Ready"
)

// Condition types of a HostPathProvisioner.
const (
	ConditionAvailable   = "Available"
	ConditionProgressing = "Progressing"
	ConditionDegraded    = "Degraded"
)
