package crd

import apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// Kind says how one kind is served: what its Go type does not know.
type Kind struct {
	Group      string
	Kind       string
	Plural     string
	ShortNames []string
	Categories []string
	Cluster    bool // scope
	Status     bool // has the status subresource
	Scale      bool // has the scale subresource, and spec.replicas is 1 when left out
	Columns    []apiextensionsv1.CustomResourceColumnDefinition
	Versions   []Version // the first is the one that is stored
	Approved   string    // where Kubernetes approved the kind, which kinds of its own groups must say
}

// Version is one served version of a kind.
type Version struct {
	Name    string
	Package string // import path of the Go type, which is named like the kind
	Warning string // deprecation warning, none when empty
}

const (
	coreTypes            = "kubevirt.io/api/core/v1"
	instancetypeTypes    = "kubevirt.io/api/instancetype/v1beta1"
	poolTypes            = "kubevirt.io/api/pool/v1beta1"
	machineSnapshotTypes = "kubevirt.io/api/snapshot/v1beta1"
	exportTypes          = "kubevirt.io/api/export/v1beta1"
	backupTypes          = "kubevirt.io/api/backup/v1alpha1"
	cloneTypes           = "kubevirt.io/api/clone/v1beta1"
	cdiTypes             = "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	templateTypes        = "github.com/openshift/api/template/v1"
	snapshotTypes        = "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	ownTypes             = "github.com/slipway-vm/slipway/internal/api/"
)

var all = []string{"all"}

// Kinds is every kind that Slipway serves, with the names and columns that users know.
var Kinds = []Kind{
	{
		Group: "kubevirt.io", Kind: "VirtualMachine", Plural: "virtualmachines",
		ShortNames: []string{"vm", "vms"}, Categories: all, Status: true, Versions: coreVersions,
		Columns: columns(age,
			column("Status", ".status.printableStatus", "Human Readable Status"),
			column("Ready", condition("Ready"), "")),
	},
	{
		// No status subresource: clients of the field write the whole object.
		Group: "kubevirt.io", Kind: "VirtualMachineInstance", Plural: "virtualmachineinstances",
		ShortNames: []string{"vmi", "vmis"}, Categories: all, Versions: coreVersions,
		Columns: columns(age, phase,
			column("IP", ".status.interfaces[0].ipAddress", ""),
			column("NodeName", ".status.nodeName", ""),
			column("Ready", condition("Ready"), ""),
			wide("Live-Migratable", condition("LiveMigratable")),
			wide("Paused", condition("Paused"))),
	},
	{
		Group: "kubevirt.io", Kind: "VirtualMachineInstanceReplicaSet", Plural: "virtualmachineinstancereplicasets",
		ShortNames: []string{"vmirs", "vmirss"}, Categories: all, Status: true, Scale: true, Versions: coreVersions,
		Columns: columns(
			number("Desired", ".spec.replicas", "Number of desired VirtualMachineInstances"),
			number("Current", ".status.replicas", "Number of managed and not final or deleted VirtualMachineInstances"),
			number("Ready", ".status.readyReplicas", "Number of managed VirtualMachineInstances which are ready to receive traffic"),
			age),
	},
	{
		Group: "pool.kubevirt.io", Kind: "VirtualMachinePool", Plural: "virtualmachinepools",
		ShortNames: []string{"vmpool", "vmpools"}, Categories: all, Status: true, Scale: true,
		Versions: []Version{
			{Name: "v1beta1", Package: poolTypes},
			{Name: "v1alpha1", Package: poolTypes, Warning: "pool.kubevirt.io/v1alpha1 is now deprecated; use v1beta1."}, // the same fields
		},
		Columns: columns(
			number("Desired", ".spec.replicas", "Number of desired VirtualMachines"),
			number("Current", ".status.replicas", "Number of managed VirtualMachines"),
			number("Ready", ".status.readyReplicas", "Number of managed VirtualMachines whose guests are ready"),
			age),
	},
	{
		Group: "snapshot.kubevirt.io", Kind: "VirtualMachineSnapshot", Plural: "virtualmachinesnapshots",
		ShortNames: []string{"vmsnapshot", "vmsnapshots"}, Categories: all, Status: true, Versions: machineSnapshotVersions,
		Columns: columns(
			column("SourceKind", ".spec.source.kind", ""),
			column("SourceName", ".spec.source.name", ""),
			column("Phase", ".status.phase", ""),
			boolean("ReadyToUse", ".status.readyToUse"),
			date("CreationTime", ".status.creationTime"),
			column("Error", ".status.error.message", "")),
	},
	{
		Group: "snapshot.kubevirt.io", Kind: "VirtualMachineSnapshotContent", Plural: "virtualmachinesnapshotcontents",
		ShortNames: []string{"vmsnapshotcontent", "vmsnapshotcontents"}, Categories: all, Status: true, Versions: machineSnapshotVersions,
		Columns: columns(
			boolean("ReadyToUse", ".status.readyToUse"),
			date("CreationTime", ".status.creationTime"),
			column("Error", ".status.error.message", "")),
	},
	{
		Group: "snapshot.kubevirt.io", Kind: "VirtualMachineRestore", Plural: "virtualmachinerestores",
		ShortNames: []string{"vmrestore", "vmrestores"}, Categories: all, Status: true, Versions: machineSnapshotVersions,
		Columns: columns(
			column("TargetKind", ".spec.target.kind", ""),
			column("TargetName", ".spec.target.name", ""),
			boolean("Complete", ".status.complete"),
			date("RestoreTime", ".status.restoreTime")),
	},
	{
		Group: "export.kubevirt.io", Kind: "VirtualMachineExport", Plural: "virtualmachineexports",
		ShortNames: []string{"vmexport", "vmexports"}, Categories: all, Status: true,
		Versions: []Version{{Name: "v1beta1", Package: exportTypes}, {Name: "v1", Package: exportTypes}}, // the same fields
		Columns: columns(
			column("SourceKind", ".spec.source.kind", ""),
			column("SourceName", ".spec.source.name", ""),
			column("Phase", ".status.phase", "")),
	},
	{
		Group: "clone.kubevirt.io", Kind: "VirtualMachineClone", Plural: "virtualmachineclones",
		ShortNames: []string{"vmclone", "vmclones"}, Categories: all, Status: true,
		// v1alpha1 has the fields that came later, too: what is written in one version is there in the other.
		Versions: []Version{{Name: "v1beta1", Package: cloneTypes}, {Name: "v1alpha1", Package: cloneTypes}},
		Columns: columns(phase,
			column("SourceVirtualMachine", ".spec.source.name", ""),
			column("TargetVirtualMachine", ".status.targetName", "")),
	},
	{
		Group: "backup.kubevirt.io", Kind: "VirtualMachineBackup", Plural: "virtualmachinebackups",
		ShortNames: []string{"vmbackup", "vmbackups"}, Categories: all, Status: true, Versions: []Version{{Name: "v1alpha1", Package: backupTypes}},
		Columns: columns(age,
			column("SourceKind", ".spec.source.kind", ""),
			column("SourceName", ".spec.source.name", ""),
			column("Type", ".status.type", ""),
			column("Complete", condition("Complete"), ""),
			column("Failed", condition("Failed"), "")),
	},
	{
		Group: "backup.kubevirt.io", Kind: "VirtualMachineBackupTracker", Plural: "virtualmachinebackuptrackers",
		ShortNames: []string{"vmbackuptracker", "vmbackuptrackers"}, Categories: all, Status: true, Versions: []Version{{Name: "v1alpha1", Package: backupTypes}},
		Columns: columns(age,
			column("SourceName", ".spec.source.name", ""),
			column("LatestCheckpoint", ".status.latestCheckpoint.name", "")),
	},
	{
		Group: "kubevirt.io", Kind: "KubeVirt", Plural: "kubevirts",
		ShortNames: []string{"kv", "kvs"}, Categories: all, Status: true, Versions: coreVersions,
		Columns: columns(age, phase),
	},
	{
		Group: "instancetype.kubevirt.io", Kind: "VirtualMachineInstancetype", Plural: "virtualmachineinstancetypes",
		ShortNames: []string{"vminstancetype", "vminstancetypes", "vmf", "vmfs"}, Categories: all,
		Versions: beta(instancetypeTypes),
	},
	{
		Group: "instancetype.kubevirt.io", Kind: "VirtualMachineClusterInstancetype", Plural: "virtualmachineclusterinstancetypes",
		ShortNames: []string{"vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"}, Cluster: true,
		Versions: beta(instancetypeTypes),
	},
	{
		Group: "instancetype.kubevirt.io", Kind: "VirtualMachinePreference", Plural: "virtualmachinepreferences",
		ShortNames: []string{"vmpref", "vmprefs", "vmp", "vmps"}, Categories: all,
		Versions: beta(instancetypeTypes),
	},
	{
		Group: "instancetype.kubevirt.io", Kind: "VirtualMachineClusterPreference", Plural: "virtualmachineclusterpreferences",
		ShortNames: []string{"vmcp", "vmcps"}, Cluster: true,
		Versions: beta(instancetypeTypes),
	},
	{
		Group: "cdi.kubevirt.io", Kind: "DataVolume", Plural: "datavolumes",
		ShortNames: []string{"dv", "dvs"}, Categories: all, Status: true, Versions: beta(cdiTypes),
		Columns: columns(
			column("Phase", ".status.phase", "The phase the data volume is in"),
			column("Progress", ".status.progress", "Transfer progress in percentage if known, N/A otherwise"),
			number("Restarts", ".status.restartCount", "The number of times the transfer has been restarted."),
			age),
	},
	{
		// No status subresource in the field either.
		Group: "cdi.kubevirt.io", Kind: "DataSource", Plural: "datasources",
		ShortNames: []string{"das"}, Categories: all, Versions: beta(cdiTypes),
	},
	{
		Group: "cdi.kubevirt.io", Kind: "CDI", Plural: "cdis",
		ShortNames: []string{"cdi", "cdis"}, Cluster: true, Status: true, Versions: beta(cdiTypes),
		Columns: columns(age, phase),
	},
	{
		// No status subresource in the field either.
		Group: "cdi.kubevirt.io", Kind: "CDIConfig", Plural: "cdiconfigs", Cluster: true, Versions: beta(cdiTypes),
	},
	{
		Group: "cdi.kubevirt.io", Kind: "StorageProfile", Plural: "storageprofiles",
		Cluster: true, Status: true, Versions: beta(cdiTypes),
	},
	{
		Group: "cdi.kubevirt.io", Kind: "ObjectTransfer", Plural: "objecttransfers",
		ShortNames: []string{"ot", "ots"}, Cluster: true, Status: true, Versions: beta(cdiTypes),
		Columns: columns(age, column("Phase", ".status.phase", "The phase of the ObjectTransfer")),
	},
	{
		// No status subresource in the field either.
		Group: "cdi.kubevirt.io", Kind: "DataImportCron", Plural: "dataimportcrons",
		ShortNames: []string{"dic", "dics"}, Categories: all, Versions: beta(cdiTypes),
		Columns: columns(column("Format", ".status.sourceFormat", "The format in which created sources are saved")),
	},
	{
		Group: "cdi.kubevirt.io", Kind: "VolumeImportSource", Plural: "volumeimportsources", Versions: beta(cdiTypes),
	},
	{
		Group: "cdi.kubevirt.io", Kind: "VolumeUploadSource", Plural: "volumeuploadsources", Versions: beta(cdiTypes),
	},
	{
		Group: "cdi.kubevirt.io", Kind: "VolumeCloneSource", Plural: "volumeclonesources", Versions: beta(cdiTypes),
	},
	{
		Group: "template.openshift.io", Kind: "Template", Plural: "templates",
		Versions: []Version{{Name: "v1", Package: templateTypes}},
		Columns:  columns(column("Description", `.metadata.annotations.description`, ""), age),
	},
	{
		Group: "template.kubevirt.io", Kind: "VirtualMachineTemplate", Plural: "virtualmachinetemplates",
		ShortNames: []string{"vmt", "vmts"}, Status: true, Versions: machineTemplateVersions,
		Columns: columns(age, column("Ready", condition("Ready"), "")),
	},
	{
		Group: "template.kubevirt.io", Kind: "VirtualMachineTemplateRequest", Plural: "virtualmachinetemplaterequests",
		ShortNames: []string{"vmtr", "vmtrs"}, Status: true, Versions: machineTemplateVersions,
		Columns: columns(
			column("Template", ".status.templateRef.name", ""),
			age,
			column("Ready", condition("Ready"), ""),
			column("Progressing", condition("Progressing"), "")),
	},
	{
		Group: "hco.kubevirt.io", Kind: "HyperConverged", Plural: "hyperconvergeds",
		ShortNames: []string{"hco", "hcos"}, Categories: all, Status: true,
		Versions: []Version{
			{Name: "v1", Package: ownTypes + "hco/v1"},
			{Name: "v1beta1", Package: ownTypes + "hco/v1beta1"},
		},
		Columns: columns(age, column("Available", condition("Available"), ""), wide("Health", ".status.systemHealthStatus")),
	},
	{
		Group: "ssp.kubevirt.io", Kind: "SSP", Plural: "ssps", Status: true,
		Versions: []Version{
			{Name: "v1beta3", Package: ownTypes + "ssp/v1beta3"},
			{Name: "v1beta2", Package: ownTypes + "ssp/v1beta3"},
		},
		Columns: columns(age, phase),
	},
	{
		Group: "hostpathprovisioner.kubevirt.io", Kind: "HostPathProvisioner", Plural: "hostpathprovisioners",
		ShortNames: []string{"hpp", "hpps"}, Cluster: true, Status: true,
		Versions: beta(ownTypes + "hostpathprovisioner/v1beta1"),
		Columns:  columns(age, column("Available", condition("Available"), "")),
	},
	{
		Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass", Plural: "volumesnapshotclasses",
		ShortNames: []string{"vsclass", "vsclasses"}, Cluster: true, Versions: snapshotVersions, Approved: snapshotApproval,
		Columns: columns(column("Driver", ".driver", ""), column("DeletionPolicy", ".deletionPolicy", ""), age),
	},
	{
		Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotContent", Plural: "volumesnapshotcontents",
		ShortNames: []string{"vsc", "vscs"}, Cluster: true, Status: true, Versions: snapshotVersions, Approved: snapshotApproval,
		Columns: columns(
			boolean("ReadyToUse", ".status.readyToUse"),
			number("RestoreSize", ".status.restoreSize", "The bytes that a volume made from it needs"),
			column("DeletionPolicy", ".spec.deletionPolicy", ""),
			column("Driver", ".spec.driver", ""),
			column("VolumeSnapshotClass", ".spec.volumeSnapshotClassName", ""),
			column("VolumeSnapshot", ".spec.volumeSnapshotRef.name", ""),
			column("VolumeSnapshotNamespace", ".spec.volumeSnapshotRef.namespace", ""),
			age),
	},
	{
		Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshot", Plural: "volumesnapshots",
		ShortNames: []string{"vs"}, Status: true, Versions: snapshotVersions, Approved: snapshotApproval,
		Columns: columns(
			boolean("ReadyToUse", ".status.readyToUse"),
			column("SourcePVC", ".spec.source.persistentVolumeClaimName", ""),
			column("SourceSnapshotContent", ".spec.source.volumeSnapshotContentName", ""),
			column("RestoreSize", ".status.restoreSize", "The size that a volume made from it needs"),
			column("SnapshotClass", ".spec.volumeSnapshotClassName", ""),
			column("SnapshotContent", ".status.boundVolumeSnapshotContentName", ""),
			date("CreationTime", ".status.creationTime"),
			age),
	},
}

// machineSnapshotVersions have the same fields.
var machineSnapshotVersions = []Version{{Name: "v1beta1", Package: machineSnapshotTypes}, {Name: "v1alpha1", Package: machineSnapshotTypes}}

// machineTemplateVersions have the same fields, too.
var machineTemplateVersions = []Version{
	{Name: "v1beta1", Package: ownTypes + "virtualmachinetemplate/v1beta1"},
	{Name: "v1alpha1", Package: ownTypes + "virtualmachinetemplate/v1beta1"},
}

var snapshotVersions = []Version{{Name: "v1", Package: snapshotTypes}}

// snapshotApproval is where the v1 kinds of snapshots were approved, as their publisher's own definitions say it.
const snapshotApproval = "https://github.com/kubernetes-csi/external-snapshotter/pull/814"

var coreVersions = []Version{
	{Name: "v1", Package: coreTypes},
	{
		Name: "v1alpha3", Package: coreTypes,
		Warning: "kubevirt.io/v1alpha3 is now deprecated and will be removed in a future release.",
	},
}

func beta(types string) []Version { return []Version{{Name: "v1beta1", Package: types}} }

var (
	age   = apiextensionsv1.CustomResourceColumnDefinition{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}
	phase = column("Phase", ".status.phase", "")
)

func columns(c ...apiextensionsv1.CustomResourceColumnDefinition) []apiextensionsv1.CustomResourceColumnDefinition {
	return c
}

func column(name, path, description string) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{Name: name, Type: "string", JSONPath: path, Description: description}
}

func number(name, path, description string) apiextensionsv1.CustomResourceColumnDefinition {
	c := column(name, path, description)
	c.Type = "integer"
	return c
}

func date(name, path string) apiextensionsv1.CustomResourceColumnDefinition {
	c := column(name, path, "")
	c.Type = "date"
	return c
}

func boolean(name, path string) apiextensionsv1.CustomResourceColumnDefinition {
	c := column(name, path, "")
	c.Type = "boolean"
	return c
}

// wide is a column that only kubectl get -o wide shows.
func wide(name, path string) apiextensionsv1.CustomResourceColumnDefinition {
	c := column(name, path, "")
	c.Priority = 1
	return c
}

func condition(kind string) string {
	return ".status.conditions[?(@.type=='" + kind + "')].status"
}
