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

// annotationAuthority on an export's Service and its server's pod is the authority of its certificate, in PEM.
const annotationAuthority = names.Domain + "export-authority"

// annotationCertificate on an export's Service and its server's pod names the Secret with the certificate, which all
// servers of the export have, with annotationAuthority: whoever trusts one trusts the next.
const annotationCertificate = names.Domain + "export-certificate"

// annotationVolumes on an export server's pod is a digest of the volumes that it gives out.
const annotationVolumes = names.Domain + "export-volumes"

// podKind is what the pods of export servers are for.
const podKind = "exporter"

// Places in an export server's pod.
const (
	folderDir     = "/export-volumes"
	blockDir      = "/dev/export-volumes"
	certDir       = "/certificate"
	tokenDir      = "/token"
	definitionDir = "/definition"
)

// retry is the time between tries of what stands in the way.
const retry = 5 * time.Second

// look is the time between looks at who uses the volumes: no event tells that a pod of others takes or leaves a claim.
const look = 30 * time.Second

// pause is for how long a server that failed is left as it is, so that it can be seen why.
const pause = 10 * time.Second

// margin is for how long a certificate is good after its export's end, for clocks that differ.
const margin = time.Hour
