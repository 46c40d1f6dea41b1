// Package population holds what a claim says of the populator that fills it: a claim whose
// dataSourceRef names one of CDI's sources, or one that an annotation makes the target of an upload.
// virt-controller writes it, and whoever uses claims reads it.
package population

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/upload"
)

// Target is the source of a claim that gets its disk by an upload because its annotation upload.AnnotationTarget
// says so: there is no object behind it. It is filled in place.
const Target = "upload"

// Annotations of a claim that is filled so; those of names.Domain are Slipway's, the others the field's.
const (
	// AnnotationUse is "true" when another claim is filled, whose volume this one then gets, and
	// "false" when it is filled itself, because its storage binds it whatever its dataSourceRef says.
	AnnotationUse = "cdi.kubevirt.io/storage.usePopulator"
	// AnnotationPrime names that other claim.
	AnnotationPrime = "cdi.kubevirt.io/storage.populator.pvcPrime"
	// AnnotationProgress is how far it is, such as "45.34%"; "N/A" when that is not known.
	AnnotationProgress = "cdi.kubevirt.io/storage.populator.progress"
	// AnnotationFilledBy names the DataVolume that fills it, or its other claim. It has the claim's uid
	// in it, so that what a copy of the claim brings along from elsewhere counts for nothing.
	AnnotationFilledBy = names.Domain + "filled-by"
	// AnnotationRefused has that same name, on a claim that is not filled as it is; AnnotationMessage says why.
	AnnotationRefused = names.Domain + "not-filled"
	// AnnotationMessage says what is waited for, or why filling has failed.
	AnnotationMessage = "cdi.kubevirt.io/storage.condition.running.message"
)

// AnnotationFills on a DataVolume is the claim that it fills: that which controls it, and not one of its own name.
const AnnotationFills = names.Domain + "fills"

// annotationPhase says of any claim how its filling ended, annotationClonePhase of a clone, and
// annotationByController that Kubernetes chose its volume.
const (
	annotationPhase        = "cdi.kubevirt.io/storage.pod.phase"
	annotationClonePhase   = "cdi.kubevirt.io/clonePhase"
	annotationByController = "pv.kubernetes.io/bound-by-controller"
	phaseSucceeded         = "Succeeded"
	phaseFailed            = "Failed"
)

// lateness is how old a claim may be that is bound when it is first seen. Storage that does not wait
// binds a claim within moments; an older one may be in use.
const lateness = 2 * time.Minute

// Source returns the kind of the source that fills claim, or Target; "" when none of CDI's does.
func Source(claim *corev1.PersistentVolumeClaim) string {
	if isTarget(claim) {
		return Target
	}
	ref := claim.Spec.DataSourceRef
	if ref == nil || ref.APIGroup == nil || *ref.APIGroup != cdiv1.CDIGroupVersionKind.Group {
		return ""
	}
	switch ref.Kind {
	case cdiv1.VolumeImportSourceRef, cdiv1.VolumeUploadSourceRef, cdiv1.VolumeCloneSourceRef:
		return ref.Kind
	}
	return ""
}

// isTarget reports whether claim asks by its annotation alone for an upload, or has done so and may still be written to.
// One of a DataVolume, which sees to it, does not, nor one that is made for another claim, nor one that gets its content
// from elsewhere.
func isTarget(claim *corev1.PersistentVolumeClaim) bool {
	begun := claim.Annotations[AnnotationFilledBy] == PrimeName(claim) && claim.Annotations[annotationPhase] != phaseSucceeded
	if !marked(claim) && !begun || claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil {
		return false
	}
	by := metav1.GetControllerOf(claim)
	return by == nil || by.Kind != "DataVolume" && by.Kind != "PersistentVolumeClaim"
}

func marked(claim *corev1.PersistentVolumeClaim) bool {
	_, is := claim.Annotations[upload.AnnotationTarget]
	return is
}

// Withdrawn reports whether claim asks for an upload no longer, and is not whole. Its Source is Target until what was to
// fill it is gone.
func Withdrawn(claim *corev1.PersistentVolumeClaim) bool { return !marked(claim) && isTarget(claim) }

// PrimeName is the name of the DataVolume that fills claim or its other claim, and of that.
func PrimeName(claim *corev1.PersistentVolumeClaim) string { return "prime-" + string(claim.UID) }

// Late reports whether claim may have been bound, empty, before its populator could see it: not long
// ago, by Kubernetes itself, and never filled. Whatever else is bound may hold somebody's data.
func Late(claim *corev1.PersistentVolumeClaim, now time.Time) bool {
	notes := claim.Annotations
	return notes[annotationByController] == "yes" && notes[annotationPhase] == "" && notes[annotationClonePhase] == "" &&
		now.Sub(claim.CreationTimestamp.Time) < lateness
}

// Undecided reports whether claim has a source, and nobody has seen to it yet: it has no volume, or
// an empty one since a moment ago. A target of an upload may have its volume for long.
func Undecided(claim *corev1.PersistentVolumeClaim) bool {
	switch source := Source(claim); {
	case source == "", Chosen(claim):
		return false
	case source == Target:
		return !Uploaded(claim)
	}
	return claim.Spec.VolumeName == "" || Late(claim, time.Now())
}

// Uploaded reports whether claim is the target of an upload that was whole, whoever took it.
func Uploaded(claim *corev1.PersistentVolumeClaim) bool {
	return Source(claim) == Target && claim.Annotations[annotationPhase] == phaseSucceeded
}

// Chosen reports whether it is decided how claim is filled.
func Chosen(claim *corev1.PersistentVolumeClaim) bool {
	return Source(claim) != "" && claim.Annotations[AnnotationFilledBy] == PrimeName(claim)
}

// InPlace reports whether claim is filled itself: it may be bound long before it is whole.
func InPlace(claim *corev1.PersistentVolumeClaim) bool {
	return Chosen(claim) && claim.Annotations[AnnotationUse] == "false"
}

// Awaited reports whether claim is yet to be filled, in whichever way.
func Awaited(claim *corev1.PersistentVolumeClaim) bool {
	return Source(claim) != "" && !Uploaded(claim) && (claim.Spec.VolumeName == "" || Undecided(claim) || Unfilled(claim) || Refused(claim))
}

// Refused reports whether claim is not filled as it is; bound or not, it has no disk.
func Refused(claim *corev1.PersistentVolumeClaim) bool {
	return Source(claim) != "" && claim.Annotations[AnnotationRefused] == PrimeName(claim)
}

// Failed reports whether filling claim has failed for good.
func Failed(claim *corev1.PersistentVolumeClaim) bool {
	return Chosen(claim) && claim.Annotations[annotationPhase] == phaseFailed
}

// Unfilled reports whether claim is filled itself, and is not whole yet.
func Unfilled(claim *corev1.PersistentVolumeClaim) bool {
	return InPlace(claim) && claim.Annotations[annotationPhase] != phaseSucceeded
}
