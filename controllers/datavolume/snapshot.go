package datavolume

import (
	"context"
	"fmt"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/transfer"
)

const (
	kindSnapshot = "VolumeSnapshot"
	// labelManagedBy on a VolumeSnapshotContent names the node that has the snapshot, where storage is of nodes.
	labelManagedBy = "snapshot.storage.kubernetes.io/managed-by"
	// snapshotRetry is how often a snapshot is looked at that is not there or not ready: its
	// kind is not watched, for a cluster may not have it.
	snapshotRetry = 5 * time.Second
	// missedRetry is how often it is looked whether the snapshot is there from which a claim is to be made.
	missedRetry = time.Minute
)

// Annotations on a VolumeSnapshot that Slipway takes, of the claim that it is taken of.
const (
	// AnnotationSourceMode is its volume mode, by the field's name.
	AnnotationSourceMode = "cdi.kubevirt.io/storage.import.sourceVolumeMode"
	// AnnotationSourceSize is its capacity, a quantity.
	AnnotationSourceSize = names.Domain + "source-size"
)

// Held are the annotations of a snapshot that is taken of a claim of such a volume mode and capacity; digest is its
// content's, empty when it is not known.
func Held(mode corev1.PersistentVolumeMode, size resource.Quantity, digest string) map[string]string {
	notes := map[string]string{AnnotationSourceMode: string(mode)}
	if !size.IsZero() {
		notes[AnnotationSourceSize] = size.String()
	}
	if digest != "" {
		notes[names.AnnotationDigest] = digest
	}
	return notes
}

// snapshotSource reads the snapshot that is cloned, and waits until it is ready.
func (r *Reconciler) snapshotSource(ctx context.Context, s *scope, from *clonesource.Source) (*origin, map[string]string, error) {
	snapshot, content, obstacle, err := r.snapshot(ctx, from.Snapshot)
	if err != nil {
		return nil, nil, err
	}
	if obstacle != nil {
		s.waiting, s.result.RequeueAfter = obstacle, snapshotRetry
		return nil, nil, steps.ErrDone
	}
	o := originOfSnapshot(snapshot, content)
	return o, clonesource.Defaults(snapshot.Labels), nil
}

// originOfSnapshot is a snapshot that is ready, as what a clone is made from. What its driver does not say, whoever took it
// may have noted: older snapshotters do not tell the volume mode, and some drivers not the size.
func originOfSnapshot(snapshot *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) *origin {
	o := &origin{
		Source: clonesource.Source{Snapshot: types.NamespacedName{Namespace: snapshot.Namespace, Name: snapshot.Name}},
		mode:   ptr.Deref(content.Spec.SourceVolumeMode, ""), driver: content.Spec.Driver,
	}
	if noted := corev1.PersistentVolumeMode(snapshot.Annotations[AnnotationSourceMode]); o.mode == "" && slices.Contains(volumeModes, noted) {
		o.mode = noted
	}
	if size := snapshot.Status.RestoreSize; size != nil {
		o.size = *size
	}
	if o.size.IsZero() {
		o.size, _ = sizeHeld(snapshot)
	}
	return o
}

var volumeModes = []corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem}

// snapshot reads a VolumeSnapshot and its content; the obstacle says why it cannot be cloned yet.
func (r *Reconciler) snapshot(ctx context.Context, key types.NamespacedName) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent, *obstacle, error) {
	snapshot, err := get(ctx, r.live, key, &snapshotv1.VolumeSnapshot{})
	if meta.IsNoMatchError(err) {
		return nil, nil, &obstacle{reasonSourceMissing, "The cluster has no VolumeSnapshots; clone a PVC instead"}, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if snapshot == nil || snapshot.DeletionTimestamp != nil {
		return nil, nil, &obstacle{reasonSourceMissing, fmt.Sprintf("Source VolumeSnapshot %s not found; it is cloned once it exists", key)}, nil
	}
	status := ptr.Deref(snapshot.Status, snapshotv1.VolumeSnapshotStatus{})
	name := ptr.Deref(status.BoundVolumeSnapshotContentName, "")
	if name == "" || !ptr.Deref(status.ReadyToUse, false) {
		return nil, nil, &obstacle{reasonSourceUnready, notReady(key, status.Error)}, nil
	}
	content, err := get(ctx, r.live, types.NamespacedName{Name: name}, &snapshotv1.VolumeSnapshotContent{})
	if err != nil {
		return nil, nil, nil, err
	}
	if content == nil || content.Spec.VolumeSnapshotRef.UID != snapshot.UID {
		return nil, nil, &obstacle{reasonSourceUnready, fmt.Sprintf("VolumeSnapshotContent %s does not hold VolumeSnapshot %s; take another snapshot", name, key)}, nil
	}
	return snapshot, content, nil, nil
}

// notReady says what a snapshot waits for, as far as it says itself.
func notReady(key types.NamespacedName, failure *snapshotv1.VolumeSnapshotError) string {
	text := fmt.Sprintf("Source VolumeSnapshot %s is not ready to use; it is cloned once it is", key)
	if failure != nil && ptr.Deref(failure.Message, "") != "" {
		text += ". It says: " + *failure.Message
	}
	return text
}

// missSnapshot notes that the snapshot is gone from which a claim that is not bound is to be made, or the one that is copied into it:
// then it never will be.
func (r *Reconciler) missSnapshot(ctx context.Context, s *scope) error {
	claim, from := s.claim, s.originOfClaim()
	if source := s.copySource(); source != nil {
		var err error
		if claim, err = get(ctx, r.Client, source.Claim, &corev1.PersistentVolumeClaim{}); err != nil || claim == nil {
			return err
		}
		from = madeFrom(claim)
	}
	if from == nil || !from.InSnapshot() || claim.Status.Phase != corev1.ClaimPending || claim.Spec.VolumeName != "" {
		return nil
	}
	s.result.RequeueAfter = missedRetry
	snapshot, err := get(ctx, r.live, from.Snapshot, &snapshotv1.VolumeSnapshot{})
	if err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	switch {
	case snapshot != nil:
	case claim == s.claim:
		s.missed = from.String()
	default:
		s.cloning = &obstacle{reasonSourceMissing, fmt.Sprintf("%s, from which PVC %s is to be made, is gone; delete the DataVolume and create it again", from, claim.Name)}
	}
	return nil
}

// clonedSnapshot returns the result of a clone of a snapshot: its content, when whoever took it has noted that, and
// the clone is of the size of what it was taken of.
func (r *Reconciler) clonedSnapshot(ctx context.Context, s *scope, key types.NamespacedName) transfer.Result {
	from, err := get(ctx, r.live, key, &snapshotv1.VolumeSnapshot{})
	if err != nil || from == nil || from.Annotations[names.AnnotationDigest] == "" {
		return transfer.Result{} // without the digest steps are not cached, and nothing else
	}
	size, noted := sizeHeld(from)
	if !noted && from.Status != nil && from.Status.RestoreSize != nil {
		size = *from.Status.RestoreSize
	}
	if size.Cmp(*s.claim.Status.Capacity.Storage()) != 0 {
		return transfer.Result{}
	}
	return transfer.Result{Digest: from.Annotations[names.AnnotationDigest]}
}

// sizeHeld is the capacity of the claim that a snapshot was taken of, and whether that is noted.
func sizeHeld(snapshot *snapshotv1.VolumeSnapshot) (resource.Quantity, bool) {
	size, err := resource.ParseQuantity(snapshot.Annotations[AnnotationSourceSize])
	return size, err == nil
}

// nodeOfSnapshot places what is made from a snapshot of a node's volume onto that node.
func (r *Reconciler) nodeOfSnapshot(ctx context.Context, key types.NamespacedName) (*corev1.NodeAffinity, error) {
	_, content, obstacle, err := r.snapshot(ctx, key)
	if err != nil || obstacle != nil || content.Labels[labelManagedBy] == "" {
		return nil, err
	}
	return onNode(content.Labels[labelManagedBy]), nil
}

func onNode(name string) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
	}}}}
}
