package datavolume

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// A disk may be there before its DataVolume: on a volume whose claimRef names the claim to come, or on a claim that a
// backup brings back. Nothing is written over either.
const (
	// AnnotationStatic on a DataVolume asks for volumes that are prepared for its claim, whatever its value.
	AnnotationStatic = "cdi.kubevirt.io/storage.checkStaticVolume"
	// AnnotationPopulatedFor on a claim is the name of the DataVolume whose disk it has.
	AnnotationPopulatedFor = "cdi.kubevirt.io/storage.populatedFor"
	// AnnotationPrePopulated on a DataVolume is the claim that has its disk; until that is there the DataVolume waits.
	AnnotationPrePopulated = "cdi.kubevirt.io/storage.prePopulated"

	annotationVolumes       = "cdi.kubevirt.io/storage.persistentVolumeList" // on a claim: the volumes that it may get, as JSON
	annotationBoundBy       = "pv.kubernetes.io/bound-by-controller"
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
	reasonUnfit             = "StaticVolumeUnfit"
)

// isRestored reports whether a claim with the disk of dv is there, or will be.
func isRestored(dv *cdiv1.DataVolume) bool {
	_, said := dv.Annotations[AnnotationPrePopulated]
	return said
}

// isPopulated reports whether claim has the disk of the DataVolume of its name.
func isPopulated(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[AnnotationPopulatedFor] == claim.Name
}

// claimPrepared makes the claim for a volume that is prepared for it, where the DataVolume asks for that, and reports
// whether there is one. Its source is not asked for.
func (r *Reconciler) claimPrepared(ctx context.Context, s *scope, input claimInput) (bool, error) {
	if _, asked := s.dv.Annotations[AnnotationStatic]; !asked {
		return false, nil
	}
	volumes, err := r.preparedFor(ctx, s.dv)
	if err != nil || len(volumes) == 0 {
		return false, err
	}
	if err := r.profile(ctx, s, &input); err != nil {
		return false, err
	}
	unfit := ""
	for n := range volumes {
		input.Prepared = &volumes[n]
		claim, err := buildClaim(input)
		if err != nil {
			return false, nil //nolint:nilerr // the claim of any volume would have it, and ensureClaim says it
		}
		if claim.Spec.StorageClassName == nil && s.class != nil {
			claim.Spec.StorageClassName = &s.class.Name // as the API server would
		}
		if wrong := misfit(&volumes[n], claim); wrong != "" {
			unfit = fmt.Sprintf("PV %s is prepared for the claim, but %s", volumes[n].Name, wrong)
			continue
		}
		log.FromContext(ctx).Info("Creating the claim of a volume that is prepared for it", "volume", volumes[n].Name)
		if err := r.create(ctx, s, claim); err != nil {
			return true, err
		}
		claim.Status.Phase = corev1.ClaimPending
		s.claim = claim
		return true, nil
	}
	r.events.Eventf(s.dv, nil, corev1.EventTypeWarning, reasonUnfit, eventAction, "%s; the disk is made anew on another volume", unfit)
	return false, nil
}

// preparedFor lists the volumes, by their names, whose claimRef names the claim of dv, and which no claim has had.
func (r *Reconciler) preparedFor(ctx context.Context, dv *cdiv1.DataVolume) ([]corev1.PersistentVolume, error) {
	var all corev1.PersistentVolumeList
	if err := r.live.List(ctx, &all); err != nil { // the cache has only those that are on their way
		return nil, fmt.Errorf("looking for volumes that are prepared for DataVolume %s: %w", dv.Name, err)
	}
	volumes := slices.DeleteFunc(all.Items, func(volume corev1.PersistentVolume) bool {
		ref, phase := volume.Spec.ClaimRef, volume.Status.Phase
		free := phase == "" || phase == corev1.VolumePending || phase == corev1.VolumeAvailable
		return ref == nil || ref.Namespace != dv.Namespace || ref.Name != dv.Name || ref.UID != "" || !free || volume.DeletionTimestamp != nil
	})
	slices.SortFunc(volumes, func(a, b corev1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return volumes, nil
}

// bindPrepared has claim bound to volume and to no other, and filled by nobody.
func bindPrepared(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	if volume == nil {
		return
	}
	list, err := json.Marshal([]string{volume.Name})
	if err != nil {
		return // never: it is a list of texts
	}
	setAll(&claim.Annotations, map[string]string{annotationVolumes: string(list)})
	claim.Spec.DataSource, claim.Spec.DataSourceRef = nil, nil
	if claim.Spec.VolumeName == "" {
		claim.Spec.VolumeName = volume.Name
	}
	if claim.Spec.Resources.Requests.Storage().IsZero() {
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *volume.Spec.Capacity.Storage()}
	}
}

// misfit says why claim cannot be bound to volume, "" when it can.
func misfit(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) string {
	have, need := volume.Spec.Capacity.Storage(), claim.Spec.Resources.Requests.Storage()
	mode, class := ptr.Deref(volume.Spec.VolumeMode, corev1.PersistentVolumeFilesystem), ptr.Deref(claim.Spec.StorageClassName, "")
	switch {
	case claim.Spec.VolumeName != volume.Name:
		return "the DataVolume names " + claim.Spec.VolumeName
	case volume.Spec.StorageClassName != class:
		return fmt.Sprintf("is of storage class %q, and the claim of %q", volume.Spec.StorageClassName, class)
	case mode != volumeMode(claim.Spec):
		return fmt.Sprintf("has volume mode %s, and the claim %s", mode, volumeMode(claim.Spec))
	case have.Cmp(*need) < 0:
		return fmt.Sprintf("has %s, and the claim asks for %s", have, need)
	}
	for _, access := range claim.Spec.AccessModes {
		if !slices.Contains(volume.Spec.AccessModes, access) {
			return fmt.Sprintf("has no access mode %s, for which the claim asks", access)
		}
	}
	return ""
}

// takePrepared takes a claim as filled that has got a volume which was prepared for it, and ends the pass until it has.
func (r *Reconciler) takePrepared(ctx context.Context, s *scope) error {
	_, asked := s.dv.Annotations[AnnotationStatic]
	prepared := s.claim.Annotations[annotationVolumes] != ""
	switch {
	case s.done() && isPopulated(s.claim):
		return r.notePrepared(ctx, s)
	case s.done() || !s.ours() || !asked && !prepared || s.claim.Annotations[AnnotationPodPhase] != "":
		return nil
	case prepared && s.claim.Status.Phase == corev1.ClaimPending:
		return r.awaitPrepared(ctx, s)
	case s.claim.Status.Phase != corev1.ClaimBound:
		return nil
	}
	if !prepared {
		if late, err := r.preparedLate(ctx, s); err != nil || !late {
			return err
		}
	}
	log.FromContext(ctx).Info("Taking the claim as filled, its volume was prepared for it", "volume", s.claim.Spec.VolumeName)
	taken := s.claim.DeepCopy()
	delete(taken.Annotations, annotationVolumes)
	setAll(&taken.Annotations, map[string]string{AnnotationPopulatedFor: s.claim.Name, AnnotationPodPhase: phaseSucceeded})
	if err := r.Patch(ctx, taken, client.MergeFrom(s.claim), client.FieldOwner(names.ManagerData)); err != nil {
		return fmt.Errorf("taking claim %s as filled: %w", s.claim.Name, err)
	}
	s.claim = taken
	return r.notePrepared(ctx, s)
}

// preparedLate reports whether the claim has got a volume that was prepared for it after it was made, and nothing was written there yet.
func (r *Reconciler) preparedLate(ctx context.Context, s *scope) (bool, error) {
	switch phase := s.dv.Status.Phase; {
	case s.pod != nil, phase != "" && phase != cdiv1.Pending && phase != cdiv1.WaitForFirstConsumer:
		return false, nil
	case !s.plan.pods(), s.claim.Annotations[annotationBroughtFrom] != "":
		return false, nil
	}
	volume, err := r.volumeOf(ctx, s.claim)
	return volume != nil && wasPrepared(volume), err
}

// awaitPrepared waits until the claim is bound. A claim whose volume has gone is made anew.
func (r *Reconciler) awaitPrepared(ctx context.Context, s *scope) error {
	s.waiting = &obstacle{reasonPending, fmt.Sprintf("PVC %s waits for PV %s, which was prepared for it", s.claim.Name, s.claim.Spec.VolumeName)}
	s.result.RequeueAfter = takenRetry
	volume, err := r.volumeOf(ctx, s.claim)
	if err != nil {
		return err
	}
	if ref := refOf(volume); ref == nil || ref.Namespace != s.claim.Namespace || ref.Name != s.claim.Name {
		log.FromContext(ctx).Info("Deleting the claim, its volume is gone", "volume", s.claim.Spec.VolumeName)
		if err := r.Delete(ctx, s.claim, client.Preconditions{UID: &s.claim.UID, ResourceVersion: &s.claim.ResourceVersion}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting claim %s: %w", s.claim.Name, err)
		}
	}
	return steps.ErrDone
}

func refOf(volume *corev1.PersistentVolume) *corev1.ObjectReference {
	if volume == nil {
		return nil
	}
	return volume.Spec.ClaimRef
}

// volumeOf reads the volume that claim has or names, nil when it is not there.
func (r *Reconciler) volumeOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	return get(ctx, r.live, types.NamespacedName{Name: claim.Spec.VolumeName}, &corev1.PersistentVolume{})
}

// wasPrepared reports whether it is the volume that chose its claim, and not Kubernetes or a provisioner.
func wasPrepared(volume *corev1.PersistentVolume) bool {
	_, chosen := volume.Annotations[annotationBoundBy]
	return !chosen && volume.Annotations[annotationProvisionedBy] == "" && volume.Spec.ClaimRef != nil
}

// notePrepared says on the DataVolume which claim has its disk, as backups know it.
func (r *Reconciler) notePrepared(ctx context.Context, s *scope) error {
	if s.dv.Annotations[AnnotationPrePopulated] == s.claim.Name || s.claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	noted := s.dv.DeepCopy()
	setAll(&noted.Annotations, map[string]string{AnnotationPrePopulated: s.claim.Name})
	if err := r.Patch(ctx, noted, client.MergeFrom(s.dv), client.FieldOwner(names.ManagerData)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("noting on DataVolume %s that its claim had the disk: %w", s.dv.Name, err)
	}
	setAll(&s.dv.Annotations, map[string]string{AnnotationPrePopulated: s.claim.Name})
	return nil
}
