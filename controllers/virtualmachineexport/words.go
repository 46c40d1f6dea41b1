package virtualmachineexport

import (
	"time"

	"github.com/slipway-vm/slipway/internal/names"
)

// Kinds of sources.
const (
	KindClaim    = "PersistentVolumeClaim"
	KindMachine  = "VirtualMachine"
	KindSnapshot = "VirtualMachineSnapshot"
)

// Reasons of conditions, in the field's words.
const (
	reasonInitializing = "Initializing"
	reasonUnknown      = "Unknown"
	reasonInUse        = "InUse"

	reasonClaimNotFound = "PVCNotFound"
	reasonClaimPending  = "PVCPending"
	reasonClaimBound    = "PVCBound"

	reasonMachineNotFound = "VMNotFound"
	reasonMachineEmpty    = "VMNoVolumes"
	reasonNotPopulated    = "VolumesNotPopulated"

	reasonSnapshotEmpty = "VMSnapshotNoVolumes"
	reasonNotAllCreated = "NotAllPVCsCreated"
	reasonNotAllReady   = "NotAllPVCsReady"
	reasonAllReady      = "AllPVCsReady"

	reasonPodPending   = "PodPending"
	reasonPodReady     = "PodReady"
	reasonPodCompleted = "PodCompleted"
)

// Reasons of events, in the field's words.
const (
	eventPodCreated = "ExporterPodCreated"
	eventPodEnded   = "ExporterPodFailedOrCompleted"
	eventPaused     = "ExportPaused"
)

// labelService on an export server's pod is the name of its Service.
const labelService = "kubevirt.io.virt-export-service"

// annotationAuthority on an export server's pod is the authority of its certificate, in PEM.
const annotationAuthority = names.Domain + "export-authority"

// podKind is what the pods of export servers are for.
const podKind = "exporter"

// Places in an export server's pod.
const (
	folderDir = "/export-volumes"
	blockDir  = "/dev/export-volumes"
	certDir   = "/certificate"
	tokenDir  = "/token"
)

// retry is the time between tries of what no event tells of: that a pod of others lets go of a claim.
const retry = 5 * time.Second

// margin is for how long a certificate is good after its export's end, for clocks that differ.
const margin = time.Hour
