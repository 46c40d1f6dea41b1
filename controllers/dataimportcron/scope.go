package dataimportcron

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
)

// scope is what one pass over a DataImportCron has found.
type scope struct {
	cron *cdiv1.DataImportCron
	// rival is the DataImportCron whose the DataSource is. By refuseRival.
	rival string
	// newest is the image to import. By read, then poll.
	newest
	// lastPoll and nextPoll are when it was polled and will be; polled says that it was in this pass. By read, then poll.
	lastPoll, nextPoll time.Time
	polled             bool
	// unknown says why the digest is not known. By poll.
	unknown string
	// unauthorized says why nothing is imported from the namespace of the source. By poll, then startImport.
	unauthorized string
	// current is the import under way, or the last one. By read, then startImport.
	current *cdiv1.ImportStatus
	dv      *cdiv1.DataVolume             // of current; nil when it is gone. By read
	claim   *corev1.PersistentVolumeClaim // of current; nil when it is gone. By read
	// snapshot is what current is kept as where it is no claim, nil when there is none or it does not count.
	// By read, then takeSnapshot.
	snapshot *snapshotv1.VolumeSnapshot
	// format is what current is to be kept as, profile that of its claim's class; nil when there is none. By read.
	format  cdiv1.DataImportCronSourceFormat
	profile *cdiv1.StorageProfile
	// unkept says why there is no snapshot of what was imported. By takeSnapshot.
	unkept string
	// last is the claim of the last import that is whole, nil when there is none; the snapshot of that name where
	// lastFormat says so. By read.
	last       *cdiv1.DataVolumeSourcePVC
	lastFormat cdiv1.DataImportCronSourceFormat
	// source is the DataSource, nil when there is none. By read.
	source *cdiv1.DataSource
	// moved says that the DataSource was written in this pass: others may not have seen it yet. By ensureDataSource.
	moved bool
	// taken says that something of somebody else has the name of what is to be made. By read, takeSnapshot and startImport.
	taken  string
	result ctrl.Result
}

// read gathers what there is. It decides nothing.
func (r *Reconciler) read(ctx context.Context, cron *cdiv1.DataImportCron) (*scope, error) {
	s := &scope{cron: cron, newest: newest{digest: cron.Annotations[AnnotationDesired], at: cron.Annotations[AnnotationStreamImage]}}
	s.lastPoll = timeOf(cron.Annotations[AnnotationLastPoll])
	s.nextPoll = timeOf(cron.Annotations[AnnotationNextPoll])
	if seen := r.polls.of(cron); seen.at.After(s.lastPoll) { // the cache lags behind
		s.lastPoll, s.newest = seen.at, seen.found
	}
	var err error
	key := types.NamespacedName{Namespace: cron.Namespace, Name: cron.Spec.ManagedDataSource}
	if s.source, err = get(ctx, r.Client, key, &cdiv1.DataSource{}); err != nil {
		return nil, err
	}
	s.last, s.lastFormat = cron.Status.LastImportedPVC, ptr.Deref(cron.Status.SourceFormat, cdiv1.DataImportCronSourceFormatPvc)
	if len(cron.Status.CurrentImports) == 0 {
		return s, nil
	}
	s.current = cron.Status.CurrentImports[0].DeepCopy()
	return s, r.readCurrent(ctx, s)
}

// readCurrent gathers what there is of the current import.
func (r *Reconciler) readCurrent(ctx context.Context, s *scope) error {
	var err error
	key := types.NamespacedName{Namespace: s.cron.Namespace, Name: s.current.DataVolumeName}
	if s.dv, err = get(ctx, r.Client, key, &cdiv1.DataVolume{}); err != nil {
		return err
	}
	if s.claim, err = get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{}); err != nil {
		return err
	}
	s.leaveOthers()
	if err := r.readFormat(ctx, s); err != nil {
		return err
	}
	if s.mayBeSnapshot() {
		if s.snapshot, err = r.snapshotOf(ctx, s.cron, key.Name); err != nil {
			return err
		}
	}
	if s.dv == nil && s.claim == nil && s.snapshot == nil {
		s.current = nil // somebody has deleted it
	}
	whole := s.whole()
	if whole == nil && s.isNamed() {
		whole = s.claim
	}
	if whole != nil {
		s.last = &cdiv1.DataVolumeSourcePVC{Namespace: s.cron.Namespace, Name: whole.GetName()}
		s.lastFormat = cdiv1.DataImportCronSourceFormatPvc
		if s.snapshotted() {
			s.lastFormat = cdiv1.DataImportCronSourceFormatSnapshot
		}
	}
	return nil
}

// leaveOthers drops what has the name of the current import and is somebody else's, such as a disk that was made from its
// snapshot: nothing of that is read, labelled or deleted. A claim that keeps ours from being made is told of.
func (s *scope) leaveOthers() {
	claim := s.claim
	var by *metav1.OwnerReference
	if claim != nil {
		by = metav1.GetControllerOf(claim)
	}
	if theirs := s.dv; theirs != nil && theirs.Labels[LabelCron] != s.cron.Name {
		s.dv = nil
		if by != nil && by.UID == theirs.UID {
			s.claim = nil
			return
		}
	}
	if claim == nil || s.owns(claim, by) {
		return
	}
	s.claim = nil
	if s.dv != nil && s.dv.DeletionTimestamp == nil && s.dv.Status.Phase != cdiv1.Succeeded && claim.Labels[LabelCron] != s.cron.Name {
		s.taken = fmt.Sprintf("PersistentVolumeClaim %s exists and is not of this DataImportCron; delete it", claim.Name)
	}
}

// owns reports whether a claim is the current import's: that of its DataVolume, or one that has outlived this. By is what
// controls the claim, nil for nothing.
func (s *scope) owns(claim *corev1.PersistentVolumeClaim, by *metav1.OwnerReference) bool {
	if s.dv != nil {
		return by != nil && by.UID == s.dv.UID
	}
	return claim.Labels[LabelCron] == s.cron.Name && (by == nil || by.Kind == kindDataVolume)
}

// timeOf reads a time of an annotation; zero when it is none.
func timeOf(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// get reads an object, or returns nil when there is none.
func get[T client.Object](ctx context.Context, c client.Reader, key types.NamespacedName, into T) (T, error) {
	var none T
	if err := c.Get(ctx, key, into); apierrors.IsNotFound(err) {
		return none, nil
	} else if err != nil {
		return none, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return into, nil
}

// imported reports whether the current import is whole, and kept as it is to be.
func (s *scope) imported() bool { return s.whole() != nil }

// whole returns what has the current import, nil while it is not imported: its snapshot, or its claim. One that was
// kept as a snapshot stays so, whatever others are kept as.
func (s *scope) whole() client.Object {
	switch {
	case s.snapshotted():
		return s.snapshot
	case s.filled() && s.format != cdiv1.DataImportCronSourceFormatSnapshot:
		return s.claim
	}
	return nil
}

// snapshotted reports whether the current import is in a snapshot that is ready.
func (s *scope) snapshotted() bool {
	return s.current != nil && s.snapshot != nil && s.snapshot.DeletionTimestamp == nil && ready(s.snapshot)
}

// isNamed reports whether the DataSource names the claim of the current import already: a pass that wrote this may not have come to
// write the status, and what others are kept as may have changed since.
func (s *scope) isNamed() bool {
	return s.filled() && s.source != nil && s.source.Spec.Source.PVC != nil && *s.source.Spec.Source.PVC == cdiv1.DataVolumeSourcePVC{Namespace: s.claim.Namespace, Name: s.claim.Name}
}

// mayBeSnapshot reports whether a snapshot of the current import counts: not while it is imported, nor where it
// is in a claim that is to stay.
func (s *scope) mayBeSnapshot() bool {
	underWay := s.dv != nil && s.dv.DeletionTimestamp == nil && s.dv.Status.Phase != cdiv1.Succeeded
	return !underWay && (!s.filled() || s.format == cdiv1.DataImportCronSourceFormatSnapshot)
}

// filled reports whether the claim of the current import is whole. It may have outlived its DataVolume, but not one by
// which it still is controlled: then it is about to go.
func (s *scope) filled() bool {
	switch {
	case s.current == nil || s.claim == nil || s.claim.DeletionTimestamp != nil:
		return false
	case s.dv != nil:
		return s.dv.Status.Phase == cdiv1.Succeeded && s.dv.DeletionTimestamp == nil
	case metav1.GetControllerOf(s.claim) != nil:
		return false
	}
	return s.claim.Annotations[datavolume.AnnotationPodPhase] == "Succeeded"
}

// outdated reports whether there is another image than the one that was imported last.
func (s *scope) outdated() bool {
	return s.digest != "" && (s.current == nil || s.current.Digest != s.digest)
}
