package objecttransfer

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/upload"
)

// ofItsPlace are the annotations of a claim that say how it came by its volume and its disk. What is made has them already.
var ofItsPlace = []string{annotationBound, annotationByPV, upload.AnnotationTarget, population.AnnotationFilledBy, population.AnnotationPrime}

// newClaim is the claim that gets the volume at goal, for the transfer of that name. A DataVolume is let take it over.
func newClaim(rec *record, goal types.NamespacedName, transfer string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metadata(&rec.claim.ObjectMeta, goal, transfer), Spec: *rec.claim.Spec.DeepCopy()}
	for _, name := range ofItsPlace {
		delete(claim.Annotations, name)
	}
	claim.Spec.VolumeName = rec.volume
	if rec.dv != nil {
		claim.Annotations[datavolume.AnnotationAdopt] = "true"
	}
	return claim
}

// newDataVolume is the DataVolume that takes that claim over.
func newDataVolume(rec *record, goal types.NamespacedName, transfer string) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{ObjectMeta: metadata(&rec.dv.ObjectMeta, goal, transfer), Spec: *rec.dv.Spec.DeepCopy()}
}

// metadata is that of what is made at goal in the place of an object. Owners of another namespace own nothing there, a
// finalizer is its owner's who put it on that object, and what was kept for a VM was kept there under that name.
func metadata(of *metav1.ObjectMeta, goal types.NamespacedName, transfer string) metav1.ObjectMeta {
	made := metav1.ObjectMeta{Namespace: goal.Namespace, Name: goal.Name, Labels: maps.Clone(of.Labels), Annotations: maps.Clone(of.Annotations)}
	delete(made.Labels, keep.LabelFor)
	if made.Annotations == nil {
		made.Annotations = map[string]string{}
	}
	made.Annotations[AnnotationName] = transfer
	if goal.Namespace == of.Namespace {
		made.OwnerReferences = slices.DeleteFunc(slices.Clone(of.OwnerReferences), func(owner metav1.OwnerReference) bool {
			return owner.Controller != nil && *owner.Controller
		})
	}
	return made
}
