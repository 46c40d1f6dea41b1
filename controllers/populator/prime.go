package populator

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/upload"
)

// primeInput is all that the DataVolume of a claim is built from.
type primeInput struct {
	Claim *corev1.PersistentVolumeClaim
	// Import, Upload or Clone is the claim's source; one is set.
	Import *cdiv1.VolumeImportSource
	Upload *cdiv1.VolumeUploadSource
	Clone  *cdiv1.VolumeCloneSource
	// InPlace says that the DataVolume fills the claim itself.
	InPlace bool
}

// buildPrime returns the DataVolume that fills a claim, or another for it, which asks for the same
// but from where the data come. It is the claim's.
//
// An import lies on the node that the claim's consumer was given, a clone where its source lies, and
// on that node only where the source lies on none.
func buildPrime(in primeInput) *cdiv1.DataVolume {
	claim := in.Claim
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{
		Name: population.PrimeName(claim), Namespace: claim.Namespace,
		Labels:          map[string]string{names.LabelManagedBy: names.ManagedBy, labelNoBackup: valueTrue},
		Annotations:     map[string]string{},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(claim, corev1.SchemeGroupVersion.WithKind(kindClaim))},
	}}
	carry := []string{datavolume.AnnotationRetain, annotationSelectedNode}
	if in.InPlace {
		carry = []string{datavolume.AnnotationRetain, names.AnnotationBind}
		dv.Annotations[population.AnnotationFills] = claim.Name
	} else if claim.Annotations[annotationSelectedNode] != "" || immediate(claim) {
		dv.Annotations[names.AnnotationBind] = valueTrue // who waited for the consumer is the claim
	}
	for _, name := range carry {
		if value, set := claim.Annotations[name]; set {
			dv.Annotations[name] = value
		}
	}
	spec := claim.Spec.DeepCopy()
	spec.DataSource, spec.DataSourceRef, spec.VolumeName = nil, nil, ""
	dv.Spec = cdiv1.DataVolumeSpec{PVC: spec, PriorityClassName: claim.Annotations[annotationPriority]}
	switch {
	case in.Import != nil:
		importFrom(in.Import, &dv.Spec)
	case in.Upload != nil:
		dv.Spec.Preallocation, dv.Spec.ContentType = in.Upload.Spec.Preallocation, in.Upload.Spec.ContentType
		dv.Spec.Source = &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
	case in.Clone != nil:
		cloneFrom(in.Clone, &dv.Spec)
	}
	return dv
}

// importFrom makes spec that of an import of source.
func importFrom(source *cdiv1.VolumeImportSource, spec *cdiv1.DataVolumeSpec) {
	spec.Preallocation, spec.ContentType = source.Spec.Preallocation, source.Spec.ContentType
	from := source.Spec.Source
	if from == nil { // admission lets none such in
		from = &cdiv1.ImportSourceType{}
	}
	spec.Source = &cdiv1.DataVolumeSource{
		HTTP: from.HTTP, S3: from.S3, GCS: from.GCS, Registry: from.Registry, Blank: from.Blank, Imageio: from.Imageio, VDDK: from.VDDK,
	}
}

// cloneFrom makes spec that of a clone of what source names, in its own namespace.
func cloneFrom(source *cdiv1.VolumeCloneSource, spec *cdiv1.DataVolumeSpec) {
	if name := source.Spec.PriorityClassName; name != nil {
		spec.PriorityClassName = *name
	}
	from := source.Spec.Source
	if from.Kind == kindSnapshot {
		spec.Source = &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: source.Namespace, Name: from.Name}}
		return
	}
	spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: source.Namespace, Name: from.Name}}
}

// immediate reports whether a claim, or what a DataVolume makes, is to be filled at once, wherever that is.
func immediate(of client.Object) bool {
	value, asked := of.GetAnnotations()[names.AnnotationBind]
	return asked && value != "false"
}

// withoutRecord is annotations without what another claim, which they were copied from, had reached.
func withoutRecord(annotations map[string]string) map[string]string {
	kept := maps.Clone(annotations)
	if kept == nil {
		kept = map[string]string{}
	}
	for _, name := range []string{
		datavolume.AnnotationPodPhase, datavolume.AnnotationRestarts, datavolume.AnnotationFailure, datavolume.AnnotationPreallocated, names.AnnotationDigest,
		upload.AnnotationReady, population.AnnotationPrime, population.AnnotationProgress, population.AnnotationRefused, annotationRunning, annotationRunningReason, annotationClonePhase, annotationCloneType,
	} {
		delete(kept, name)
	}
	return kept
}
