// Package names holds the words that more than one part of Slipway writes or
// reads: labels, annotations, finalizers, field managers and paths in pods.
// Words of the field's own API come from kubevirt.io/api; only what that module
// does not export, and what is Slipway's own, stands here.
package names

// Domain prefixes every label and annotation that is Slipway's own.
const Domain = "slipway-vm.github.io/"

// InstallNamespace is where the operator and its components live by default.
const InstallNamespace = "kubevirt-hyperconverged"

// Objects that the operator creates, with the names that clients look for.
const (
	HyperConvergedName = "kubevirt-hyperconverged"
	KubeVirtName       = "kubevirt-kubevirt-hyperconverged"
	CDIName            = "cdi-kubevirt-hyperconverged"
)

// CDIConfigName is the name of the cluster's one CDIConfig, which virt-controller keeps.
const CDIConfigName = "config"

// Annotations of StorageClasses that say which class a claim gets that names none: a virtual
// machine's disk the first, everything else, and a disk where no class has the first, the second.
const (
	AnnotationDefaultVirtClass = "storageclass.kubevirt.io/is-default-virt-class"
	AnnotationDefaultClass     = "storageclass.kubernetes.io/is-default-class"
)

// Field managers of server-side apply: one writer per field set.
const (
	ManagerOperator   = "virt-operator"
	ManagerController = "virt-controller"
	ManagerHandler    = "virt-handler"
	ManagerAPI        = "virt-api"
	ManagerData       = "cdi-controller"
)

// Environment variables by which the operator learns its images and place.
const (
	EnvSlipwayImage  = "SLIPWAY_IMAGE"
	EnvLauncherImage = "SLIPWAY_LAUNCHER_IMAGE"
	EnvGuestfsImage  = "SLIPWAY_GUESTFS_IMAGE"
	EnvKubeletRoot   = "SLIPWAY_KUBELET_ROOT"
	EnvPodNamespace  = "POD_NAMESPACE"
	EnvNodeName      = "NODE_NAME"
)

// How much a virtual machine's launcher logs: the label says it on a VirtualMachineInstance, the
// variable to the launcher. Both are the field's.
const (
	LogVerbosityLabel    = "logVerbosity"
	EnvLauncherVerbosity = "VIRT_LAUNCHER_LOG_VERBOSITY"
)

// Labels and annotations of the field that kubevirt.io/api does not export.
const (
	LabelVMName    = "vm.kubevirt.io/name"
	LabelState     = "persistent-state-for" // on a claim: the VM whose TPM's and firmware's state is there
	LabelComponent = "app.kubernetes.io/component"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelPartOf    = "app.kubernetes.io/part-of"
	LabelVersion   = "app.kubernetes.io/version"
	AnnotationBind = "cdi.kubevirt.io/storage.bind.immediate.requested"
	// AnnotationCollect on a DataVolume is true when it goes some time after it has succeeded, and false when it stays.
	AnnotationCollect = "cdi.kubevirt.io/storage.deleteAfterCompletion"
	AnnotationTemp    = "kubevirt.io/ephemeral-provisioning"
	DeviceKVM         = "devices.kubevirt.io/kvm"
	DeviceTUN         = "devices.kubevirt.io/tun"
	DeviceVhostNet    = "devices.kubevirt.io/vhost-net"
	DeviceVhostVSOCK  = "devices.kubevirt.io/vhost-vsock"
	TopologyNode      = "topology.hostpath.csi/node"
	HostPathDriver    = "kubevirt.io.hostpath-provisioner"
	// LegacyHostPathDriver is the provisioner of hostPath volumes that the field had before the driver,
	// AnnotationProvisionOnNode names the node of such a volume, on its claim and on itself.
	LegacyHostPathDriver      = "kubevirt.io/hostpath-provisioner"
	AnnotationProvisionOnNode = "kubevirt.io/provisionOnNode"
	// LabelStoragePool on claims and Deployments says of which pool of node storage they are, LabelPoolPod on
	// their pods; the values are the pool's Label.
	LabelStoragePool = "kubevirt.io.hostpath-provisioner/storagePool"
	LabelPoolPod     = "hpp-pool"
	ManagedBy        = "slipway"
	AnnotationDigest = Domain + "content-digest"
	// AnnotationBandwidth of a DataVolume is how many bytes are downloaded for it in a second, at most:
	// a quantity, such as 50Mi.
	AnnotationBandwidth = Domain + "bandwidth-limit"
	// AnnotationRegistries of the HyperConverged and of the CDI object names a ConfigMap in Slipway's
	// namespace with a registries.conf, which says where images of registries are read from.
	AnnotationRegistries = Domain + "registries-conf"
	// LabelPod says what a pod of Slipway is for: launcher, provisioner or importer.
	LabelPod = Domain + "pod"
	// AnnotationVolume names, on an attachment pod, the VMI's volume that it holds.
	AnnotationVolume = Domain + "volume"
	// LabelTaskRun is the uid of the TaskRun that made an object; an annotation where labels are the manifest's.
	LabelTaskRun = Domain + "taskrun-uid"
	// LabelTemporary is the uid of the TaskRun that a Secret was made for and goes with.
	LabelTemporary = Domain + "temporary-of"
)

// HandlerCertificateAnnotation is where virt-handler publishes, on its Node, the certificate
// in PEM that it serves with; HandlerServerName is the name in that, of every node alike, and
// HandlerAudience is whom the tokens are for that it takes.
const (
	HandlerCertificateAnnotation = Domain + "handler-certificate"
	HandlerServerName            = "virt-handler"
	HandlerAudience              = "virt-handler.slipway-vm.github.io"
)

// AppAttachment is the value of the label kubevirt.io on the pods that hold the volumes
// that a guest got while it ran.
const AppAttachment = "hotplug-disk"

// ReasonPodResized is the reason by which virt-controller tells virt-handler, in the conditions
// HotVCPUChange and HotMemoryChange of a VMI, that the pod has what the guest will need.
const ReasonPodResized = "PodResized"

// Reasons of a VMI's condition Ready, from virt-handler, while a part of it does not answer.
const (
	ReasonQEMUUnresponsive     = "QEMUUnresponsive"
	ReasonLibvirtUnresponsive  = "LibvirtUnresponsive"
	ReasonLauncherUnresponsive = "LauncherUnresponsive"
)

// QEMUUser is the uid and gid of every process that touches a guest's memory or disks.
const QEMUUser = 107

// ComputeContainer is the one container of a launcher pod.
const ComputeContainer = "compute"

// Paths inside a launcher pod.
const (
	LauncherSocketDir  = "/var/run/kubevirt/sockets"       // emptyDir VolumeSockets
	LauncherSocketName = "handler.sock"                    // made by the node's virt-handler
	LauncherBinDir     = "/var/run/kubevirt/bin"           // emptyDir VolumeBin, for container-disk
	LauncherPrivateDir = "/var/run/kubevirt-private"       // emptyDir VolumePrivate
	LauncherDisksDir   = LauncherPrivateDir + "/vmi-disks" // <volume>/disk.img of Filesystem claims
	LauncherSecretsDir = LauncherPrivateDir + "/secret"    // <volume>/ of cloud-init secrets
	LauncherStateDir   = LauncherPrivateDir + "/vm-state"  // claim VolumeState
	LauncherLibvirtDir = "/var/run/libvirt"                // emptyDir VolumeLibvirt
	// LauncherHugepagesDir is where the guest's huge pages can be had as files: emptyDir VolumeHugepages.
	LauncherHugepagesDir = "/dev/hugepages"
	// LauncherCredentialsDir has a folder for each access credential, named by its place in the list.
	LauncherCredentialsDir = LauncherPrivateDir + "/access-credentials"
	// LauncherProbeSocket is in the VMI's folder of LauncherPrivateDir: virt-probe asks there.
	LauncherProbeSocket = "probe.sock"
	LauncherBlockDir    = "/dev" // <volume> of Block claims
	// LauncherImagesDir has the files of images that are volumes of the pod: <volume>/ of container disks, and
	// that of the kernel under a name that no volume of a VMI has.
	LauncherImagesDir   = "/var/run/kubevirt/image-volumes"
	LauncherKernelImage = "kernel_boot"
	// LauncherLentDir is by what QEMU finds devices that it has only open, each by a number; the files
	// there are empty.
	LauncherLentDir = LauncherBlockDir + "/fdset"
)

// Names of the volumes behind those paths.
const (
	VolumeSockets = "sockets"
	VolumeBin     = "bin"
	VolumePrivate = "private"
	VolumeLibvirt = "libvirt"
	VolumeAccess  = "access-credential-" // and the credential's place in the list
	VolumeState   = "vm-state"           // the claim of what a VM keeps beside its disks
	// VolumeKernel is the image with the kernel that a VM boots, where images are volumes of the pod.
	VolumeKernel = "kernel-boot-image"
	// VolumeHugepages is of the medium HugePages.
	VolumeHugepages = "hugepages"
)

// What is handed over like container disks for kernel boot; no volume can be named so.
const (
	KernelBootKernel = "kernel-boot/kernel"
	KernelBootInitrd = "kernel-boot/initrd"
)

// DiskFile is the file of a Filesystem claim that holds a disk.
const DiskFile = "disk.img"
