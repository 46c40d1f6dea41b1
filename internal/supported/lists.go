package supported

import "strings"

// lists returns the fields that are acted on, by kind.
func lists() map[string][]Field {
	instance := below("spec.", vmiFields)
	machine := join(vmFields, below("template.spec.", vmiFields), below("dataVolumeTemplates[].spec.", dataVolumeFields))
	replicaSet := append(below("spec.", replicaSetFields), below("spec.template.spec.", vmiFields)...)
	return map[string][]Field{
		VirtualMachine:         below("spec.", join(machine, []Field{volumesMigrate})),
		VirtualMachineInstance: instance,
		ReplicaSet:             replicaSet,
		Pool:                   append(below("spec.", poolFields), below("spec.virtualMachineTemplate.spec.", join(machine, []Field{volumesReplace}))...),
		DataVolume:             below("spec.", dataVolumeFields),
		Snapshot:               below("spec.", snapshotFields),
		Restore:                below("spec.", restoreFields),
		Export:                 below("spec.", exportFields),
		Clone:                  below("spec.", cloneFields),
		Backup:                 below("spec.", backupFields),
		BackupTracker:          below("spec.", each("source.", "apiGroup kind name")),
		DataImportCron:         below("spec.", join(cronFields, below("template.spec.", dataVolumeFields))),
		ObjectTransfer:         below("spec.", transferFields),
		CDI:                    below("spec.", cdiFields),
		KubeVirt:               below("spec.", kubeVirtFields),
		VolumeImportSource:     below("spec.", join(importFields, fillFields)),
		VolumeUploadSource:     below("spec.", []Field{{Path: "contentType", Only: []string{"kubevirt", "archive"}}, {Path: "preallocation"}}),
		VolumeCloneSource:      below("spec.", volumeCloneFields),
	}
}

// below returns fields with prefix before their paths.
func below(prefix string, fields []Field) []Field {
	all := make([]Field, 0, len(fields))
	for _, f := range fields {
		f.Path = prefix + f.Path
		all = append(all, f)
	}
	return all
}

// each returns a field for each of the names, which are separated by spaces, below path.
func each(path, names string) []Field {
	var fields []Field
	for name := range strings.FieldsSeq(names) {
		fields = append(fields, Field{Path: path + name})
	}
	return fields
}

func join(lists ...[]Field) []Field {
	var all []Field
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// vmFields are those of a VirtualMachine's spec, but for its template's.
var vmFields = join(
	[]Field{
		{Path: "running", Note: "Deprecated by the field: true means runStrategy Always, false means Halted."},
		{Path: "runStrategy", Only: []string{"Always", "RerunOnFailure", "Once", "Manual", "Halted"}, Note: "RerunOnFailure starts a VM again, with back-off, when it failed; after a power-off of the guest, and with Once and Manual after any end, " +
			"the VirtualMachineInstance stays as it ended until the VM is started anew, halted or deleted."},
		{Path: "template.metadata", Note: "Labels and annotations of the VirtualMachineInstance."},
		{Path: "dataVolumeTemplates[].metadata"},
		{Path: "dataVolumeTemplates[].status", Note: "Exists for old clients and means nothing."},
		{Path: "dataVolumeTemplates[].apiVersion", Note: "Exists for old clients and means nothing."},
		{Path: "dataVolumeTemplates[].kind", Note: "Exists for old clients and means nothing."},
	},
	each("instancetype.", "name kind inferFromVolume inferFromVolumeFailurePolicy"),
	each("preference.", "name kind inferFromVolume inferFromVolumeFailurePolicy"),
	[]Field{
		{Path: "instancetype.revisionName", Note: "A ControllerRevision that holds the instance type as it is to be used; without it, the one in the VM's status."},
		{Path: "preference.revisionName", Note: "As instancetype.revisionName."},
	},
)

// volumesMigrate is what becomes of the disks of a VirtualMachine whose volumes are changed, volumesReplace of those of a pool's.
var (
	volumesMigrate = Field{Path: "updateVolumesStrategy", Only: []string{"Replacement", "Migration"},
		Note: "With Replacement volumes change at the next start; with Migration the disk of a stopped VM is copied to the new claim before that."}
	volumesReplace = Field{Path: "updateVolumesStrategy", Only: []string{"Replacement"}, Note: "Volumes change at the next start."}
)

// replicaSetFields are those of a VirtualMachineInstanceReplicaSet's spec, but for its template's.
var replicaSetFields = join(
	[]Field{
		{Path: "replicas", Note: "1 when left out."},
		{Path: "selector", Note: "Must match the template's labels, and must not be empty."},
		{Path: "paused", Note: "Nothing is created, deleted or replaced while it is true."},
		{Path: "template.metadata.name", Note: "What the names of the VirtualMachineInstances begin with; the replica set's own name when left out."},
		{Path: "template.metadata.generateName", Note: "As name, where there is none."},
	},
	each("template.metadata.", "labels annotations"),
)

// poolFields are those of a VirtualMachinePool's spec, but for its template's.
var poolFields = join(
	[]Field{
		{Path: "replicas", Note: "1 when left out."},
		{Path: "selector", Note: "Must match the template's labels, and must not be empty."},
		{Path: "paused", Note: "Nothing is created, deleted or updated while it is true."},
		{Path: "maxUnavailable", Note: "How many guests a proactive update may have stand still, at least one; 100% when left out."},
		{Path: "scaleInStrategy.unmanaged", Note: "VMs that are too much are the user's to delete."},
		{Path: "scaleInStrategy.opportunistic.statePreservation", Only: []string{"Disabled", "Offline"}, Note: "VMs that are too much are the user's to delete. Offline keeps the disks of a VM that somebody deletes for the next one of its name."},
		{Path: "scaleInStrategy.proactive.statePreservation", Only: []string{"Disabled", "Offline"}, Note: "Offline keeps the disks of a VM for the next one of its name."},
		{Path: "autohealing.startUpFailureThreshold", Note: "3 when left out."},
		{Path: "autohealing.minFailingToStartDuration", Note: "5m when left out."},
		{Path: "updateStrategy.unmanaged", Note: "VMs keep the template that they were made from."},
		{Path: "updateStrategy.opportunistic", Note: "VMs get the template at once, guests at their next start."},
		{Path: "virtualMachineTemplate.metadata.labels"},
		{Path: "virtualMachineTemplate.metadata.annotations"},
	},
	each("nameGeneration.", "appendIndexToConfigMapRefs appendIndexToSecretRefs"),
	each("scaleInStrategy.proactive.selectionPolicy.", "sortPolicy selectors.labelSelector selectors.nodeSelectorRequirementMatcher"),
	each("updateStrategy.proactive.selectionPolicy.", "sortPolicy selectors.labelSelector selectors.nodeSelectorRequirementMatcher"),
)

// snapshotFields are those of a VirtualMachineSnapshot's spec.
var snapshotFields = join(
	each("source.", "apiGroup kind name"),
	[]Field{
		{Path: "deletionPolicy", Only: []string{"Delete", "Retain"}, Note: "Retain keeps a content that is ready, and its VolumeSnapshots, when the snapshot is deleted."},
		{Path: "failureDeadline", Note: "Five minutes when left out; 0s for none."},
	},
)

// restoreFields are those of a VirtualMachineRestore's spec.
var restoreFields = join(
	each("target.", "apiGroup kind name"),
	[]Field{
		{Path: "virtualMachineSnapshotName"},
		{Path: "targetReadinessPolicy", Only: []string{"StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually"}},
		{Path: "volumeRestorePolicy", Only: []string{"RandomizeNames", "PrefixTargetName", "InPlace"}, Note: "What the new claims are named."},
		{Path: "volumeOwnershipPolicy", Only: []string{"Vm", "None"}, Note: "Whether the new claims go with the VM."},
		{Path: "patches", Note: "Of a VM that the restore makes: of its labels, its annotations, and its spec."},
	},
	each("volumeRestoreOverrides[].", "volumeName restoreName labels annotations"),
)

// exportFields are those of a VirtualMachineExport's spec.
var exportFields = []Field{
	{Path: "source.apiGroup"},
	{Path: "source.kind", Note: "PersistentVolumeClaim, VirtualMachine or VirtualMachineSnapshot. The volumes must not be in use; a VirtualMachine must not run."},
	{Path: "source.name"},
	{Path: "tokenSecretRef", Note: "A Secret with the key token; one is made when it is left out."},
	{Path: "ttlDuration", Note: "Two hours when left out. Then the export is deleted."},
}

// cloneFields are those of a VirtualMachineClone's spec.
var cloneFields = join(
	each("source.", "apiGroup kind name"),
	each("target.", "apiGroup kind name"),
	[]Field{
		{Path: "labelFilters", Note: "Of the VM's labels; all are kept when it is left out."},
		{Path: "annotationFilters"},
		{Path: "template.labelFilters", Note: "Of the labels in the VM's template."},
		{Path: "template.annotationFilters"},
		{Path: "newMacAddresses", Note: "By the names of interfaces; others get addresses of their own."},
		{Path: "newSMBiosSerial", Note: "None when left out."},
		{Path: "patches", Note: "Of the VM's labels, its annotations, and its spec; after all the others."},
		{Path: "volumeNamePolicy", Only: []string{"RandomizeNames", "PrefixTargetName"}, Note: "What the new claims are named."},
	},
)

// backupFields are those of a VirtualMachineBackup's spec.
var backupFields = join(
	each("source.", "apiGroup kind name"),
	[]Field{
		{Path: "mode", Only: []string{"Push"}, Note: "Push when left out."},
		{Path: "pvcName", Note: "A claim of the mode Filesystem, to which files are written."},
		{Path: "skipQuiesce", Note: "The guest's file systems are not made to stand still as the backup begins."},
		{Path: "forceFullBackup", Note: "Also where the tracker has a checkpoint."},
	},
)

// importFields are the sources of a disk that comes from elsewhere, or of an empty one.
var importFields = join(
	each("source.http.", "url secretRef certConfigMap extraHeaders secretExtraHeaders checksum insecureSkipVerify"),
	each("source.s3.", "url secretRef certConfigMap"),
	each("source.gcs.", "url secretRef"),
	each("source.registry.", "url secretRef certConfigMap platform.architecture"),
	[]Field{
		{Path: "source.registry.pullMethod", Only: []string{"pod", "node"}, Note: "node: the kubelet pulls the image, with the node's credentials and mirrors."},
		{Path: "source.registry.imageStream", Note: "With pullMethod node, on OpenShift."},
		{Path: "source.blank"},
	},
)

// fillFields are how a disk is written.
var fillFields = []Field{
	{Path: "contentType", Only: []string{"kubevirt", "archive"}, Note: "archive: a tar archive from source http, s3, gcs or upload, unpacked into the file system."},
	{Path: "preallocation"},
}

// dataVolumeFields are those of a DataVolume's spec.
var dataVolumeFields = join(
	importFields,
	[]Field{{Path: "source.upload", Note: "The image comes through cdi-uploadproxy: virtctl image-upload."}},
	each("source.pvc.", "namespace name"),
	each("source.snapshot.", "namespace name"),
	each("sourceRef.", "kind namespace name"),
	[]Field{
		{Path: "pvc", Note: "The claim as it is written."},
		{Path: "storage", Note: "A claim of which what is left out is chosen."},
	},
	fillFields,
	each("", "priorityClassName serviceAccountName"),
)

// volumeCloneFields are those of a VolumeCloneSource's spec.
var volumeCloneFields = join(
	each("source.", "apiGroup kind name"),
	[]Field{
		{Path: "priorityClassName"},
		{Path: "preallocation", Only: []string{"false"}, Note: "A CSI driver makes the clone."},
	},
)
