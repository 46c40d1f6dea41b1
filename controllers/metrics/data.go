package metrics

import (
	"slices"
	"strconv"
	"strings"

	conditionsv1 "github.com/openshift/custom-resource-status/conditions/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/names"
)

var (
	importProgress = metric.Metric{
		Name: "kubevirt_cdi_import_progress_total", Kind: metric.Counter, Labels: []string{"ownerUID"},
		Help: "How much of an import is done, in percent; `ownerUID` is that of its claim.",
	}
	cloneProgress = metric.Metric{
		Name: "kubevirt_cdi_clone_progress_total", Kind: metric.Counter, Labels: []string{"ownerUID"},
		Help: "How much of a clone is done, in percent; `ownerUID` is that of its claim.",
	}
	cdiReady = metric.Metric{
		Name: "kubevirt_cdi_cr_ready", Kind: metric.Gauge, Help: "1 when the CDI object says that imports, uploads and clones are served.",
	}
	cronOutdated = metric.Metric{
		Name: "kubevirt_cdi_dataimportcron_outdated", Kind: metric.Gauge, Labels: []string{"ns", "cron_name", "pending"},
		Help: "1 when the newest image of a DataImportCron is not imported; `pending` is `true` while its import waits for a default StorageClass.",
	}
	volumesPending = metric.Metric{
		Name: "kubevirt_cdi_datavolume_pending", Kind: metric.Gauge,
		Help: "DataVolumes that name no StorageClass and wait for a default one.",
	}
	profileInfo = metric.Metric{
		Name: "kubevirt_cdi_storageprofile_info", Kind: metric.Gauge,
		Labels: []string{"storageclass", "provisioner", "complete", "default", "virtdefault", "rwx", "smartclone", "degraded"},
		Help: "What is known of a StorageClass: whether claims' modes are (`complete`), whether it is a default, whether several nodes can write (`rwx`), " +
			"and whether it clones by itself (`smartclone`); it is `degraded` when one of the last two is missing. Always 1.",
	}
	dataMetrics = []metric.Metric{importProgress, cloneProgress, cdiReady, cronOutdated, volumesPending, profileInfo}
)

// tellData tells of what disks are made from.
func (w *world) tellData(tell teller) {
	if len(w.cdis) > 0 {
		tell(cdiReady, number(conditionsv1.IsStatusConditionTrue(w.cdis[0].Status.Conditions, conditionsv1.ConditionAvailable)))
	}
	waiting := map[client.ObjectKey]bool{}
	for i := range w.volumes {
		dv := &w.volumes[i]
		if w.waitsForClass(dv) {
			waiting[client.ObjectKeyFromObject(dv)] = true
		}
		w.tellProgress(tell, dv)
	}
	tell(volumesPending, float64(len(waiting)))
	for i := range w.crons {
		cron := &w.crons[i]
		pending := slices.ContainsFunc(cron.Status.CurrentImports, func(one cdiv1.ImportStatus) bool {
			return waiting[client.ObjectKey{Namespace: cron.Namespace, Name: one.DataVolumeName}]
		})
		tell(cronOutdated, number(outdated(cron)), cron.Namespace, cron.Name, strconv.FormatBool(pending))
	}
	w.tellProfiles(tell)
}

// outdated is a cron that says so; one that has said nothing yet is not.
func outdated(cron *cdiv1.DataImportCron) bool {
	return slices.ContainsFunc(cron.Status.Conditions, func(c cdiv1.DataImportCronCondition) bool {
		return c.Type == cdiv1.DataImportCronUpToDate && c.Status == corev1.ConditionFalse
	})
}

// waitsForClass says whether dv's claim is of no StorageClass, and is not bound.
func (w *world) waitsForClass(dv *cdiv1.DataVolume) bool {
	if slices.ContainsFunc(w.classes, func(class storagev1.StorageClass) bool {
		return isDefault(&class, names.AnnotationDefaultClass) || isDefault(&class, names.AnnotationDefaultVirtClass)
	}) {
		return false
	}
	if phase := dv.Status.Phase; phase != "" && phase != cdiv1.Pending {
		return false
	}
	if claim := w.claims[client.ObjectKeyFromObject(dv)]; claim != nil && (claim.Spec.StorageClassName != nil || claim.Status.Phase == corev1.ClaimBound) {
		return false
	}
	named := dv.Spec.PVC != nil && dv.Spec.PVC.StorageClassName != nil || dv.Spec.Storage != nil && dv.Spec.Storage.StorageClassName != nil
	return !named
}

// tellProgress tells of an import or clone what its DataVolume says, of which "12.5%" is a number.
func (w *world) tellProgress(tell teller, dv *cdiv1.DataVolume) {
	claim := w.claims[client.ObjectKeyFromObject(dv)]
	percent, err := strconv.ParseFloat(strings.TrimSuffix(string(dv.Status.Progress), "%"), 64)
	if claim == nil || err != nil {
		return // what is not known is not told
	}
	switch source := dv.Spec.Source; {
	case source == nil: // a DataSource leads to a claim or a snapshot
		tell(cloneProgress, percent, string(claim.UID))
	case source.PVC != nil, source.Snapshot != nil:
		tell(cloneProgress, percent, string(claim.UID))
	case source.Upload == nil && source.Blank == nil:
		tell(importProgress, percent, string(claim.UID))
	}
}

func isDefault(class *storagev1.StorageClass, annotation string) bool {
	return class.Annotations[annotation] == "true"
}

func (w *world) tellProfiles(tell teller) {
	classes := map[string]*storagev1.StorageClass{}
	for i := range w.classes {
		classes[w.classes[i].Name] = &w.classes[i]
	}
	for i := range w.profiles {
		status := &w.profiles[i].Status
		class := classes[w.profiles[i].Name]
		if class == nil || ofBuckets(class) { // the profile is about to go, or is of no disks
			continue
		}
		rwx, smart := sharedByNodes(status.ClaimPropertySets), false
		if strategy := status.CloneStrategy; strategy != nil {
			smart = *strategy == cdiv1.CloneStrategySnapshot || *strategy == cdiv1.CloneStrategyCsiClone
		}
		tell(profileInfo, 1, class.Name, class.Provisioner, strconv.FormatBool(complete(status.ClaimPropertySets)),
			strconv.FormatBool(isDefault(class, names.AnnotationDefaultClass)), strconv.FormatBool(isDefault(class, names.AnnotationDefaultVirtClass)),
			strconv.FormatBool(rwx), strconv.FormatBool(smart), strconv.FormatBool(!rwx || !smart))
	}
}

// ofBuckets says whether class gives out buckets of an object store, in whose claims no disk could be.
func ofBuckets(class *storagev1.StorageClass) bool {
	return strings.HasSuffix(class.Provisioner, "ceph.rook.io/bucket") || strings.HasSuffix(class.Provisioner, "noobaa.io/obc")
}

// complete says whether a claim's modes are all known.
func complete(sets []cdiv1.ClaimPropertySet) bool {
	return len(sets) > 0 && !slices.ContainsFunc(sets, func(set cdiv1.ClaimPropertySet) bool {
		return len(set.AccessModes) == 0 || set.VolumeMode == nil
	})
}

func sharedByNodes(sets []cdiv1.ClaimPropertySet) bool {
	return slices.ContainsFunc(sets, func(set cdiv1.ClaimPropertySet) bool {
		return slices.Contains(set.AccessModes, corev1.ReadWriteMany)
	})
}
