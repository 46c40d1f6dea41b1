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
// +kubebuilder:validation:XValidation:rule="!has(self.pathConfig) || !has(self.storagePools) || self.storagePools.all(p, p.name != 'legacy')",fieldPath=".storagePools",message="pathConfig has a pool of the name legacy: name the other pools otherwise"
// +kubebuilder:validation:XValidation:rule="!has(self.pathConfig) || !has(self.storagePools) || self.storagePools.all(p, p.path != self.pathConfig.path && p.path != self.pathConfig.path + '/csi')",fieldPath=".storagePools",message="a pool has the path of pathConfig, or its directory csi, which are those of the pool legacy: give each pool a directory of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.featureGates) || self.featureGates.all(gate, gate == 'Snapshotting')",fieldPath=".featureGates",message="the only feature gate is Snapshotting: leave the others out"
// +kubebuilder:validation:XValidation:rule="has(self.pathConfig) || (has(self.storagePools) && size(self.storagePools) > 0)",message="storagePools is empty: name at least one pool (a name and a path)"
// +kubebuilder:validation:XValidation:rule="!has(self.storagePools) || self.storagePools.all(p, self.storagePools.exists_one(q, q.path == p.path))",fieldPath=".storagePools",message="two pools have the same path: give each pool a directory of its own"
type HostPathProvisionerSpec struct {
	// imagePullPolicy is the pull policy of the pods that hold the claims of pools. The driver
	// is a part of virt-handler and has no image of its own.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// pathConfig is the directory of the legacy provisioner, whose volumes it keeps working, and
	// of a pool of the name legacy. New installations need none.
	// +optional
	PathConfig *PathConfig `json:"pathConfig,omitempty"`

	// storagePools are the directories that hold volumes. The first has the StorageClass
	// hostpath-csi, each further one hostpath-csi-<name>; the pool of pathConfig is the last.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	// +optional
	StoragePools []StoragePool `json:"storagePools,omitempty"`

	// workload says which nodes have the pools. Empty: all nodes on which virt-handler runs.
	// +optional
	Workload NodePlacement `json:"workload,omitempty"`

	// featureGates turn on experimental features of the field's driver. Snapshotting changes nothing: snapshots are always served.
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +optional
	FeatureGates []string `json:"featureGates,omitempty"`
}

// StoragePool is a directory that exists under the same path on every node of the
// workload and holds volumes.
//
// +kubebuilder:validation:XValidation:rule="has(self.pvcTemplate) == has(oldSelf.pvcTemplate)",fieldPath=".pvcTemplate",message="a pool cannot come to lie on claims, or cease to: its volumes would be lost from sight; add a pool of another name"
// +kubebuilder:validation:XValidation:rule="!has(self.pvcTemplate) || !has(self.pvcTemplate.volumeMode) || self.pvcTemplate.volumeMode == 'Filesystem'",fieldPath=".pvcTemplate.volumeMode",message="a pool on block volumes is not supported yet: ask for volumeMode Filesystem, which most classes of block storage have, too"
// +kubebuilder:validation:XValidation:rule="!has(self.pvcTemplate) || (has(self.pvcTemplate.accessModes) && self.pvcTemplate.accessModes == ['ReadWriteOnce'])",fieldPath=".pvcTemplate.accessModes",message="each node has a claim of its own: ask for ReadWriteOnce alone; pools that nodes share are not supported yet"
// +kubebuilder:validation:XValidation:rule="!has(self.pvcTemplate) || (has(self.pvcTemplate.resources) && has(self.pvcTemplate.resources.requests) && 'storage' in self.pvcTemplate.resources.requests)",fieldPath=".pvcTemplate.resources",message="requests.storage is missing: say how large the claims are"
// +kubebuilder:validation:XValidation:rule="!has(self.pvcTemplate) || !has(self.pvcTemplate.volumeName)",fieldPath=".pvcTemplate.volumeName",message="one volume cannot be of several nodes' claims: leave volumeName out, and choose volumes by storageClassName or selector"
// +kubebuilder:validation:XValidation:rule="!has(self.pvcTemplate) || (!has(self.pvcTemplate.dataSource) && !has(self.pvcTemplate.dataSourceRef))",fieldPath=".pvcTemplate",message="a pool begins empty: leave dataSource and dataSourceRef out"
type StoragePool struct {
	// name identifies the pool, as the parameter storagePool of a StorageClass.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// path is the absolute path of the directory on the node. It must exist there: a
	// directory that is made when its disk is not mounted would fill the wrong disk.
	// It cannot change, since the pool's volumes stay where they are. With a pvcTemplate it
	// is where the pod that holds the node's claim has it.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/]+)+$') && !self.matches('(^|/)[.][.]?(/|$)')",message="path must be absolute and clean: no empty part, no . or .. in it"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the path of a pool cannot change: its volumes would be lost from sight; add a pool of another name"
	Path string `json:"path"`

	// pvcTemplate is what the claims ask for that the pool lies on, one for each node. A pod on the
	// node has its claim mounted at the pool's path, in which case that is a path in the pod.
	// Claims that exist grow when it asks for more; else it counts for nodes that come later.
	// +optional
	PVCTemplate *corev1.PersistentVolumeClaimSpec `json:"pvcTemplate,omitempty"`

	// snapshotProvider is how the pool's snapshots are made. There is one way, reflink, which copies where the file system
	// shares no blocks.
	// +kubebuilder:validation:XValidation:rule="self == 'reflink'",message="snapshots are made by sharing blocks where the pool's file system can: name reflink, or leave the field out"
	// +optional
	SnapshotProvider string `json:"snapshotProvider,omitempty"`

	// overlayClassName is the StorageClass of a pool that nodes share, which is not supported yet.
	// +kubebuilder:validation:XValidation:rule="self == ''",message="pools that nodes share are not supported yet: leave overlayClassName out"
	// +optional
	OverlayClassName string `json:"overlayClassName,omitempty"`
}

// PathConfig is the directory of the legacy provisioner, kubevirt.io/hostpath-provisioner.
type PathConfig struct {
	// path is the absolute path of the directory on the node under which volumes are made. It must
	// exist there, and cannot change, since the volumes stay where they are.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/]+)+$') && !self.matches('(^|/)[.][.]?(/|$)')",message="path must be absolute and clean: no empty part, no . or .. in it"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the path of pathConfig cannot change: its volumes would be lost from sight; add a pool to storagePools"
	Path string `json:"path"`

	// useNamingPrefix puts the claim's name before the volume's in the name of its directory.
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

	// phase is Ready once the pool has a StorageClass, and its claims are mounted where it lies on claims.
	Phase StoragePoolPhase `json:"phase"`

	// desiredReady is on how many nodes a claim of the pool is to be mounted.
	// +optional
	DesiredReady int `json:"desiredReady,omitempty"`

	// currentReady is on how many nodes a claim of the pool is mounted.
	// +optional
	CurrentReady int `json:"currentReady,omitempty"`

	// claimStatuses are the claims that the pool lies on.
	// +listType=atomic
	// +optional
	ClaimStatuses []ClaimStatus `json:"claimStatuses,omitempty"`
}

// ClaimStatus is a claim that a pool lies on.
type ClaimStatus struct {
	// name is the claim's name, in Slipway's namespace.
	Name string `json:"name"`

	// status is the claim's.
	Status corev1.PersistentVolumeClaimStatus `json:"status"`
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
