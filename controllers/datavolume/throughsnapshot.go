package datavolume

import (
	"context"
	"fmt"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// Where the StorageProfile's strategy is snapshot, a claim is cloned through VolumeSnapshot clone-<uid of the
// DataVolume>, which is taken where the claim is. The snapshot bears the same marks as a clone that is on its way
// (LabelCloneFor, annotationCloneFor), and goes when the DataVolume has ended: see SetupSnapshots.
const (
	// AnnotationSnapshotOf on a DataVolume's claim of the source's namespace is the claim whose snapshot it is made from, as
	// clonesource.Source.Mark writes it. It says how the clone was made; what the snapshot holds is noted on that.
	AnnotationSnapshotOf = names.Domain + "snapshot-of"
	// annotationSourceUID on the snapshot is the uid of the claim that it was taken of.
	annotationSourceUID = names.Domain + "source-uid"
	// snapshotFirstRetry is how soon a snapshot that was just asked for is looked at.
	snapshotFirstRetry = time.Second
)

// throughSnapshot returns the claim to create when input's source is cloned through a snapshot: made from that, as
// input then says. It ends the pass until the snapshot is ready. claim is what is made from the source itself, and
// stays as it is where the StorageProfile does not want snapshots.
func (r *Reconciler) throughSnapshot(ctx context.Context, s *scope, input *claimInput, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	source := input.Source
	if source.InSnapshot() || isCopy(claim) || input.Strategy != cdiv1.CloneStrategySnapshot || input.SnapshotClass == "" {
		return claim, nil
	}
	snapshot, err := r.ensureSnapshot(ctx, s, source, input.SnapshotClass)
	if err != nil {
		return nil, err
	}
	input.Source, input.Grow = source.through(snapshot), true // storage may need more room to restore it than the source has
	s.origin = input.Source
	if claim, err = buildClaim(*input); err != nil {
		s.failed = &obstacle{reasonInvalidClone, restoring(s.dv) + err.Error()}
		return nil, steps.ErrDone
	}
	setAll(&claim.Annotations, map[string]string{AnnotationSnapshotOf: source.Mark()})
	return claim, nil
}

// restoring begins the message of a DataVolume to which the snapshot does not fit through which it clones.
func restoring(dv *cdiv1.DataVolume) string {
	return fmt.Sprintf("VolumeSnapshot %s, through which it is cloned: ", cloneName(dv.UID))
}

// unfit is why the DataVolume has failed when the snapshot through which it clones did not fit, nil otherwise. That snapshot
// is gone, and another one would not fit either.
func unfit(dv *cdiv1.DataVolume) *obstacle {
	running := condition(dv.Status.Conditions, cdiv1.DataVolumeRunning)
	if dv.Status.Phase != cdiv1.Failed || running == nil || running.Reason != reasonInvalidClone || !strings.HasPrefix(running.Message, restoring(dv)) {
		return nil
	}
	return &obstacle{running.Reason, running.Message}
}

// ensureSnapshot takes the snapshot of source through which it is cloned, and ends the pass until that is ready.
func (r *Reconciler) ensureSnapshot(ctx context.Context, s *scope, source *origin, class string) (*snapshotv1.VolumeSnapshot, error) {
	key := types.NamespacedName{Namespace: source.Claim.Namespace, Name: cloneName(s.dv.UID)}
	there, err := get(ctx, r.live, key, &snapshotv1.VolumeSnapshot{})
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, err
	}
	switch {
	case there == nil:
		if s.failed = unfit(s.dv); s.failed != nil {
			return nil, steps.ErrDone
		}
		return nil, r.takeSnapshot(ctx, s, source, class)
	case there.Labels[LabelCloneFor] != string(s.dv.UID):
		s.waiting = &obstacle{reasonExists, fmt.Sprintf("VolumeSnapshot %s exists already and is none of Slipway's; the source is cloned once it is gone", key)}
		s.result.RequeueAfter = takenRetry
		return nil, steps.ErrDone
	}
	if there.DeletionTimestamp == nil && !isOf(there, source) { // a DataSource moved on meanwhile, or the claim is another one now
		log.FromContext(ctx).Info("Deleting a snapshot of what is not cloned any more", "snapshot", there.Name, "source", source.String())
		if err := r.Delete(ctx, there, client.Preconditions{UID: &there.UID}); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("deleting VolumeSnapshot %s: %w", key, err)
		}
		s.takes(fmt.Sprintf("Taking VolumeSnapshot %s anew, of %s", key, source), 0)
		return nil, steps.ErrDone
	}
	status := ptr.Deref(there.Status, snapshotv1.VolumeSnapshotStatus{})
	if there.DeletionTimestamp == nil && ptr.Deref(status.ReadyToUse, false) {
		return there, nil
	}
	message := fmt.Sprintf("Taking VolumeSnapshot %s of %s, which is cloned from it", key, source)
	if status.Error != nil && ptr.Deref(status.Error.Message, "") != "" {
		message += ". It says: " + *status.Error.Message
	}
	s.takes(message, r.now().Sub(there.CreationTimestamp.Time))
	return nil, steps.ErrDone
}

// isOf reports whether a snapshot was taken of source as it is: of the same claim, with the same content.
func isOf(snapshot *snapshotv1.VolumeSnapshot, source *origin) bool {
	notes := snapshot.Annotations
	return ptr.Deref(snapshot.Spec.Source.PersistentVolumeClaimName, "") == source.Claim.Name &&
		notes[annotationSourceUID] == string(source.uid) && notes[names.AnnotationDigest] == source.digest
}

// takeSnapshot asks for the snapshot, and ends the pass.
func (r *Reconciler) takeSnapshot(ctx context.Context, s *scope, source *origin, class string) error {
	if err := r.checkOrigin(ctx, source); err != nil {
		return err
	}
	snapshot := buildCloneSnapshot(s.dv, source, class)
	log.FromContext(ctx).Info("Taking a snapshot to clone", "source", source.String(), "snapshot", snapshot.Name, "snapshotClass", class)
	if err := r.createThere(ctx, s, snapshot); err != nil {
		return err
	}
	s.takes(fmt.Sprintf("Taking VolumeSnapshot %s/%s of %s, which is cloned from it", snapshot.Namespace, snapshot.Name, source), 0)
	return steps.ErrDone
}

// checkOrigin makes sure that source is a claim as the cache shows it, for what is noted of that is noted on its snapshot.
func (r *Reconciler) checkOrigin(ctx context.Context, source *origin) error {
	claim, err := get(ctx, r.live, source.Claim, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	if claim == nil || claim.UID != source.uid || claim.Annotations[names.AnnotationDigest] != source.digest {
		return errStale
	}
	return nil
}

// takes notes that the source's snapshot is being taken since age, and when it is looked at again: its kind is not
// watched, for a cluster may not have it.
func (s *scope) takes(message string, age time.Duration) {
	s.taking, s.cloning = true, &obstacle{reasonCloning, message}
	s.result.RequeueAfter = min(max(age/4, snapshotFirstRetry), snapshotRetry)
}

// buildCloneSnapshot returns the snapshot of a claim through which dv clones it.
func buildCloneSnapshot(dv *cdiv1.DataVolume, of *origin, class string) *snapshotv1.VolumeSnapshot {
	notes := map[string]string{annotationCloneFor: client.ObjectKeyFromObject(dv).String(), annotationSourceUID: string(of.uid)}
	setAll(&notes, Held(of.mode, of.size, of.digest))
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Name: cloneName(dv.UID), Namespace: of.Claim.Namespace, Annotations: notes,
			Labels: map[string]string{LabelCloneFor: string(dv.UID), names.LabelManagedBy: names.ManagedBy, labelApp: labelAppValue},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new(of.Claim.Name)}, VolumeSnapshotClassName: new(class),
		},
	}
}

// through is a claim as what a clone is made from by a snapshot of it, which is ready.
func (o *origin) through(snapshot *snapshotv1.VolumeSnapshot) *origin {
	from := *o
	from.Source = clonesource.Source{Snapshot: client.ObjectKeyFromObject(snapshot), Labels: o.Labels}
	if size := snapshot.Status.RestoreSize; size != nil && size.Cmp(o.size) > 0 {
		from.size = *size
	}
	return &from
}
