// Package dataimportcron looks for new images when DataImportCrons say so, imports them by
// DataVolumes, and keeps a DataSource on the last one that is whole: on its claim, or on a
// snapshot of that, as the StorageProfile of the claim's class has it.
//
// The controller polls by itself: a request for one byte of a file, or for the digest of an image in a registry, or a look at a claim or an ImageStream. There is no
// CronJob for it, and a pod only where nodes pull the image, with what they alone have, or where Secrets let in, which it does not read.
package dataimportcron

import (
	"time"

	"github.com/slipway-vm/slipway/internal/imageversion"
)

// Labels and annotations of the field.
const (
	// LabelCron is on DataVolumes, claims, snapshots and DataSources: the DataImportCron that they are of.
	LabelCron = "cdi.kubevirt.io/dataImportCron"
	// LabelCleanup is on those that go with it.
	LabelCleanup = "cdi.kubevirt.io/dataImportCron.cleanup"
	// AnnotationDesired on a DataImportCron is the digest of the image that is to be imported.
	AnnotationDesired = "cdi.kubevirt.io/storage.import.sourceDesiredDigest"
	// AnnotationStreamImage on a DataImportCron is where that image lies, as registry/path@digest, of one that follows an ImageStream.
	AnnotationStreamImage = "cdi.kubevirt.io/storage.import.imageStreamDockerRef"
	// AnnotationLastPoll and AnnotationNextPoll on a DataImportCron are when it was polled last and is next.
	AnnotationLastPoll = "cdi.kubevirt.io/storage.import.lastCronTime"
	AnnotationNextPoll = "cdi.kubevirt.io/storage.import.nextCronTime"
	// AnnotationLastUse on a claim or snapshot is when it became what the DataSource names. What was used longest ago goes first.
	AnnotationLastUse = "cdi.kubevirt.io/storage.import.lastUseTime"

	annotationRetainPod = "cdi.kubevirt.io/storage.pod.retainAfterCompletion"
	manager             = "dataimportcron-controller" // of fields; others have status and annotations of the same objects
	eventAction         = "Reconcile"
	valueTrue           = "true"
	kindDataVolume      = "DataVolume"
)

// Reasons of conditions and events, in the field's words.
const (
	reasonNoDigest  = "NoDigest"
	reasonNoImport  = "NoImport"
	reasonOutdated  = "Outdated"
	reasonScheduled = "ImportScheduled"
	reasonProgress  = "ImportProgressing"
	reasonFailed    = "ImportFailed"
	reasonUpToDate  = "UpToDate"
	reasonUnkept    = "SnapshotNotReady"
	reasonManaged   = "ErrDataSourceAlreadyManaged"
	reasonTaken     = "ErrResourceExists"
	reasonPollError = "PollFailed"
	reasonDenied    = "NotAuthorized"
)

const (
	digestPrefix = imageversion.Prefix
	// digestInName is how many digits of a digest are in the name of its DataVolume.
	digestInName = 12
	// keptImports is how many imports stay where spec.importsToKeep does not say.
	keptImports = 3
	// pollBound is how long a server may take to answer, unless tests say otherwise.
	pollBound = 20 * time.Second
	// A poll that failed is tried again after firstRetry, doubled up to lastRetry, but not after the next one is due.
	firstRetry = time.Minute
	lastRetry  = time.Hour
	// pollsPerSecond and pollBurst bound how often virt-controller polls for all DataImportCrons.
	pollsPerSecond = 2
	pollBurst      = 10
	// busyRetry is how long a poll waits that is one too many, goneRetry how long a deletion is given.
	busyRetry = time.Second
	goneRetry = 2 * time.Second
	// snapshotRetry is how often a snapshot is looked at that is not ready: its kind is not watched.
	snapshotRetry = 5 * time.Second
	// snapshotPatience is how long a snapshot may say nothing before a newer image is imported in its place. One of a large
	// disk, which storage copies away before it is ready, takes minutes.
	snapshotPatience = 15 * time.Minute
	// neededRetry is how often it is looked whether a claim is needed that is kept as a snapshot.
	neededRetry = time.Minute
)
