// Package objecttransfer moves DataVolumes and PersistentVolumeClaims to another namespace or name, as ObjectTransfers ask:
// the volume stays, and its claim and DataVolume are made anew around it.
//
// Until the source is locked and recorded in the ObjectTransfer's status (Pending), nothing has happened to it, and everything
// that can be known to stand in the way is asked before. From then on (Running) each pass looks at what is there and does
// what is next, in the order of Reconciler.running: the volume is kept and marked before the source goes (package
// handover), the target has its name before the volume is given to it, and the volume gets its reclaim policy back
// when all else stands. An ObjectTransfer that is deleted goes back to where it came from while its target is not there, and ends
// as it would have otherwise.
package objecttransfer

import (
	"time"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
)

// The field's annotation and finalizer.
const (
	// AnnotationName on a DataVolume or claim names the ObjectTransfer that moves it: on the source until that is gone, on
	// the target until that is whole.
	AnnotationName = "cdi.kubevirt.io/objectTransferName"
	// Finalizer keeps an ObjectTransfer until nothing is on its way any more.
	Finalizer = "cdi.kubevirt.io/objectTransfer"
)

// Marks of a volume that is on its way.
const (
	// LabelFor is the ObjectTransfer's uid. virt-controller hears of the volumes that have this label, which clones have, too.
	LabelFor = datavolume.LabelCloneFor
	// annotationFor is its name.
	annotationFor = names.Domain + "transfer-for"
)

// Keys of status.data. The first four are the field's.
const (
	dataSource  = "source"    // the source as JSON
	dataVolume  = "pvName"    // the volume
	dataReclaim = "pvReclaim" // its reclaim policy
	dataClaim   = "pvcName"   // the claim of a DataVolume
	dataBacking = "pvc"       // that claim as JSON
)

// Messages of condition Complete, in the field's words where it has some; its reasons say more, as in the field.
const (
	sayInitializing = "Initializing"
	sayPending      = "Pending"
	sayRunning      = "Running"
	sayComplete     = "Transfer complete"
	sayError        = "Error"
	sayNoSource     = "No source"
	sayAnnotations  = "Required annotation missing"
	sayUnfilled     = "Source not populated"
	sayControlled   = "Source is controlled by another object"
	sayUnbound      = "PVC not bound"
	sayFinalizer    = "PVC has finalizer: "
	sayCloned       = "Source is being cloned"
	sayVolume       = "PV not bound"
	sayPods         = "Pods using PVC"
	sayPodsOfDV     = "Pods using DataVolume PVC"
	sayLocked       = "Source in use by another transfer"
	sayTargetThere  = "Target already exists"
	sayNamespace    = "Target namespace not found"
	sayRefused      = "Target is refused"
	sayGoing        = "Waiting for source to be deleted"
	sayBinding      = "Waiting for target to be bound"
	sayFilling      = "Waiting for target DataVolume"
	sayWrongClaim   = "PV bound to wrong PVC"
	sayNoVolume     = "PV not found"
)

const (
	kindDataVolume  = "DataVolume"
	kindClaim       = "PersistentVolumeClaim"
	controllerName  = "objecttransfer"
	eventAction     = "Transfer"
	annotationBound = "pv.kubernetes.io/bind-completed"
	annotationByPV  = "pv.kubernetes.io/bound-by-controller"

	finalizerCloned   = "provisioner.storage.kubernetes.io/cloning-protection"
	finalizerSnapshot = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
)

// retry is when that is looked at again of whose end nothing tells.
const retry = 10 * time.Second
