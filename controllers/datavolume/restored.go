package datavolume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// What is in a snapshot only its driver can read. To be copied elsewhere it becomes claim restored-<uid of the DataVolume>
// first, where the snapshot is. That bears the marks of a clone that is on its way, and goes when the copy has ended.
func restoredName(uid types.UID) string { return "restored-" + string(uid) }

// restore returns the claim to create when a snapshot is copied: from the claim that is made of it, as input then says. Any other
// claim stays as it is.
func (r *Reconciler) restore(ctx context.Context, s *scope, input *claimInput, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	snapshot := input.Source
	if !snapshot.InSnapshot() || !isCopy(claim) {
		return claim, nil
	}
	key := types.NamespacedName{Namespace: snapshot.Snapshot.Namespace, Name: restoredName(s.dv.UID)}
	restored, err := get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{})
	switch {
	case err != nil:
		return nil, err
	case restored == nil:
		if restored, err = r.createRestored(ctx, s, snapshot); err != nil {
			return nil, err
		}
	case restored.Labels[LabelCloneFor] != string(s.dv.UID):
		s.waiting = &obstacle{reasonExists, fmt.Sprintf("PVC %s exists already and is none of Slipway's; the snapshot is copied once it is gone", key)}
		s.result.RequeueAfter = takenRetry
		return nil, steps.ErrDone
	case restored.DeletionTimestamp != nil || s.way.manner() == notBegun && !madeFromSnapshot(restored, snapshot): // a DataSource moved on meanwhile
		s.cloning = &obstacle{reasonCloning, fmt.Sprintf("PVC %s, which was made of a snapshot, is being deleted; it is made anew", key)}
		return nil, r.endRestored(ctx, restored)
	}
	source := originOf(restored)
	source.Labels, source.size = snapshot.Labels, snapshot.size
	source.bound = true // by the pod that copies, if not before
	input.Source, input.Restored, s.origin = source, true, source
	copied, err := buildClaim(*input)
	if err != nil {
		s.failed = &obstacle{reasonInvalidClone, err.Error()}
		return nil, steps.ErrDone
	}
	if why := claim.Annotations[annotationFallback]; why != "" {
		setAll(&copied.Annotations, map[string]string{annotationFallback: why})
	}
	return copied, nil
}

// madeFromSnapshot reports whether claim is to hold what snapshot does.
func madeFromSnapshot(claim *corev1.PersistentVolumeClaim, snapshot *origin) bool {
	from := madeFrom(claim)
	return from != nil && from.Mark() == snapshot.Mark()
}

// endRestored deletes a claim that was made of a snapshot, and ends the pass.
func (r *Reconciler) endRestored(ctx context.Context, restored *corev1.PersistentVolumeClaim) error {
	if restored.DeletionTimestamp == nil {
		if err := r.deleteRestored(ctx, restored); err != nil {
			return err
		}
	}
	return steps.ErrDone
}

func (r *Reconciler) deleteRestored(ctx context.Context, restored *corev1.PersistentVolumeClaim) error {
	log.FromContext(ctx).Info("Deleting the claim that was made of a snapshot", "namespace", restored.Namespace, "claim", restored.Name)
	if err := r.Delete(ctx, restored, client.Preconditions{UID: &restored.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting claim %s/%s: %w", restored.Namespace, restored.Name, err)
	}
	return nil
}

// createRestored has the driver of a snapshot make a claim of it.
func (r *Reconciler) createRestored(ctx context.Context, s *scope, snapshot *origin) (*corev1.PersistentVolumeClaim, error) {
	class, err := r.classOfSnapshot(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	if class == nil {
		s.waiting = &obstacle{reasonSourceUnready, fmt.Sprintf("There is no storage class of driver %s, by which %s is read; create one", snapshot.driver, snapshot)}
		s.result.RequeueAfter = takenRetry
		return nil, steps.ErrDone
	}
	profile, err := get(ctx, r.Client, types.NamespacedName{Name: class.Name}, &cdiv1.StorageProfile{})
	if err != nil {
		return nil, err
	}
	restored := buildRestored(s.dv, snapshot, class.Name, profile)
	log.FromContext(ctx).Info("Making a claim of the snapshot, to copy it", "source", snapshot.String(), "claim", restored.Name, "class", class.Name)
	return restored, r.createThere(ctx, s, restored)
}

// buildRestored returns the claim of a class that the driver makes of a snapshot.
func buildRestored(dv *cdiv1.DataVolume, snapshot *origin, class string, profile *cdiv1.StorageProfile) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: restoredName(dv.UID), Namespace: snapshot.Snapshot.Namespace,
			Labels:      map[string]string{LabelCloneFor: string(dv.UID), names.LabelManagedBy: names.ManagedBy, labelApp: labelAppValue},
			Annotations: map[string]string{annotationCloneFor: client.ObjectKeyFromObject(dv).String(), annotationFillingAlert: "disabled"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, DataSource: snapshot.reference(), VolumeMode: new(corev1.PersistentVolumeFilesystem),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: snapshot.size}},
		},
	}
	if snapshot.mode != "" {
		claim.Spec.VolumeMode = new(snapshot.mode)
	}
	if snapshot.size.IsZero() { // its driver does not tell
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *sizeAsked(dv)}
	}
	if set := offered(profile, &corev1.PersistentVolumeClaimSpec{VolumeMode: claim.Spec.VolumeMode}); set != nil {
		claim.Spec.AccessModes = slices.Clone(set.AccessModes)
	}
	if claim.Namespace == dv.Namespace {
		claim.OwnerReferences = []metav1.OwnerReference{owner(dv)}
	}
	return claim
}

// classOfSnapshot is the StorageClass by which a claim is made of a snapshot: that of the claim which it was taken of, else one of its
// driver; nil when there is none.
func (r *Reconciler) classOfSnapshot(ctx context.Context, of *origin) (*storagev1.StorageClass, error) {
	snapshot, err := get(ctx, r.live, of.Snapshot, &snapshotv1.VolumeSnapshot{})
	if err != nil {
		return nil, err
	}
	if snapshot != nil && snapshot.Spec.Source.PersistentVolumeClaimName != nil {
		key := types.NamespacedName{Namespace: snapshot.Namespace, Name: *snapshot.Spec.Source.PersistentVolumeClaimName}
		claim, err := get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{})
		if err != nil {
			return nil, err
		}
		if claim != nil && claim.Spec.StorageClassName != nil {
			class, err := get(ctx, r.Client, types.NamespacedName{Name: *claim.Spec.StorageClassName}, &storagev1.StorageClass{})
			if err != nil || class != nil && class.Provisioner == of.driver {
				return class, err
			}
		}
	}
	return r.classOfDriver(ctx, of.driver)
}

// classOfDriver is a StorageClass of a driver, a default one first; nil when there is none.
func (r *Reconciler) classOfDriver(ctx context.Context, driver string) (*storagev1.StorageClass, error) {
	var classes storagev1.StorageClassList
	if err := r.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("listing storage classes: %w", err)
	}
	its := slices.DeleteFunc(classes.Items, func(class storagev1.StorageClass) bool { return class.Provisioner != driver })
	if len(its) == 0 {
		return nil, nil
	}
	if class := defaultClass(its); class != nil {
		return class, nil
	}
	slices.SortFunc(its, func(a, b storagev1.StorageClass) int { return strings.Compare(a.Name, b.Name) })
	return &its[0], nil
}

// removeRestored removes the claim that was made of a snapshot to copy it, if there is one.
func (r *Reconciler) removeRestored(ctx context.Context, s *scope) error {
	from := clonesource.FromMark(s.claim.Annotations[AnnotationCopiedFrom])
	if from == nil || from.Key().Name != restoredName(s.dv.UID) {
		return nil
	}
	restored, err := get(ctx, r.Client, from.Claim, &corev1.PersistentVolumeClaim{})
	if err != nil || restored == nil || restored.DeletionTimestamp != nil || restored.Labels[LabelCloneFor] != string(s.dv.UID) {
		return err
	}
	return r.deleteRestored(ctx, restored)
}

// nodesOfSource are those on which what is copied can be read; nil where any will do.
func (r *Reconciler) nodesOfSource(ctx context.Context, source types.NamespacedName) (*corev1.NodeAffinity, error) {
	claim, err := get(ctx, r.Client, source, &corev1.PersistentVolumeClaim{})
	if err != nil || claim == nil {
		return nil, err
	}
	if from := claim.Spec.DataSource; claim.Spec.VolumeName == "" && from != nil && from.Kind == kindSnapshot {
		return r.nodeOfSnapshot(ctx, types.NamespacedName{Namespace: source.Namespace, Name: from.Name})
	}
	return r.affinityOf(ctx, source)
}
