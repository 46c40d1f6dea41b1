package volumesnapshot

// Words of the snapshot API that its published types do not export. Drivers' own
// snapshotters go by them.
const (
	// labelManagedBy names the node whose snapshotter alone works on a content.
	labelManagedBy = "snapshot.storage.kubernetes.io/managed-by"
	// annotationDefault marks the class of snapshots that name none, for each driver.
	annotationDefault = "snapshot.storage.kubernetes.io/is-default-class"
	// annotationDeleted tells the snapshotter that the content's snapshot is being deleted.
	annotationDeleted = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
	// Annotations with the secret that a driver may need to delete a snapshot.
	annotationSecretName      = "snapshot.storage.kubernetes.io/deletion-secret-name"
	annotationSecretNamespace = "snapshot.storage.kubernetes.io/deletion-secret-namespace"
	// Parameters of a class that name that secret.
	parameterSecretName      = "csi.storage.k8s.io/snapshotter-secret-name"
	parameterSecretNamespace = "csi.storage.k8s.io/snapshotter-secret-namespace"

	// The finalizers: of a snapshot, so that its content goes before it and not under a
	// restore; of a content, until the driver let go of the data; of a claim, while a snapshot of it is taken.
	finalizerBound    = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
	finalizerAsSource = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection"
	finalizerContent  = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
	finalizerClaim    = "snapshot.storage.kubernetes.io/pvc-as-source-protection"

	kindSnapshot = "VolumeSnapshot"
)

// Reasons of events, in the field's words.
const (
	reasonCreating        = "CreatingSnapshot"
	reasonReady           = "SnapshotReady"
	reasonUnclaimed       = "SnapshotContentUnclaimed"
	reasonDriver          = "SnapshotCreationFailed" // the driver says so
	reasonDeletePending   = "SnapshotDeletePending"
	reasonCreationFailed  = "SnapshotContentCreationFailed"
	reasonClass           = "GetSnapshotClassFailed"
	reasonDefaultClass    = "SetDefaultSnapshotClassFailed"
	reasonContentMissing  = "SnapshotContentMissing"
	reasonContentMismatch = "SnapshotContentMismatch"
	reasonContentMisbound = "SnapshotContentMisbound"
)
