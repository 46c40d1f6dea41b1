package dataimportcron

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// collectGarbage deletes the imports that are too many, once a newer one is whole: those that were
// what the DataSource named longest ago. One that a DataSource names, or that is being cloned, stays, whatever is asked for.
func (r *Reconciler) collectGarbage(ctx context.Context, s *scope) error {
	whole := s.whole()
	if whole == nil || ptr.Deref(s.cron.Spec.GarbageCollect, cdiv1.DataImportCronGarbageCollectOutdated) == cdiv1.DataImportCronGarbageCollectNever {
		return nil
	}
	imports, err := r.imports(ctx, s.cron)
	if err != nil {
		return err
	}
	gone := superfluous(imports, whole, s.next(), int(ptr.Deref(s.cron.Spec.ImportsToKeep, keptImports)))
	if len(gone) == 0 {
		return nil
	}
	if s.moved {
		s.sooner(goneRetry)
		return nil
	}
	if isCurrent, err := r.isCurrent(ctx, s); err != nil || !isCurrent {
		return err
	}
	if !s.snapshotted() {
		if gone, err = r.spareSnapshot(ctx, s, gone); err != nil {
			return err
		}
	}
	if gone, err = r.unneeded(ctx, s, gone...); err != nil {
		return err
	}
	for _, old := range gone {
		log.FromContext(ctx).Info("Deleting an old import", "name", old.GetName(), "type", fmt.Sprintf("%T", old), "lastUse", old.GetAnnotations()[AnnotationLastUse])
		if err := r.discard(ctx, old); err != nil {
			return err
		}
	}
	return nil
}

// spareSnapshot leaves the snapshot of the current import out of what goes, unless its claim is there to stay past the
// cache, too: else the image would be lost.
func (r *Reconciler) spareSnapshot(ctx context.Context, s *scope, gone []client.Object) ([]client.Object, error) {
	at := slices.IndexFunc(gone, func(o client.Object) bool { return o.GetName() == s.claim.Name })
	if at < 0 {
		return gone, nil
	}
	stays, err := r.stays(ctx, s.claim)
	if err != nil || stays {
		return gone, err
	}
	s.sooner(firstRetry)
	return slices.Delete(gone, at, at+1), nil
}

// stays reports whether nobody has deleted a claim or the DataVolume with which it goes. It reads past the cache.
func (r *Reconciler) stays(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	now, err := get(ctx, r.live, client.ObjectKeyFromObject(claim), &corev1.PersistentVolumeClaim{})
	if err != nil || now == nil || now.UID != claim.UID || now.DeletionTimestamp != nil {
		return false, err
	}
	by := metav1.GetControllerOf(now)
	if by == nil {
		return true, nil
	}
	dv, err := get(ctx, r.live, types.NamespacedName{Namespace: now.Namespace, Name: by.Name}, &cdiv1.DataVolume{})
	return err == nil && dv != nil && dv.UID == by.UID && dv.DeletionTimestamp == nil, err
}

// isCurrent reports whether the current import is so past the cache, too: an import that has begun since looks as if it
// had never been used.
func (r *Reconciler) isCurrent(ctx context.Context, s *scope) (bool, error) {
	cron, err := get(ctx, r.live, client.ObjectKeyFromObject(s.cron), &cdiv1.DataImportCron{})
	if err != nil || cron == nil {
		return false, err
	}
	if cron.UID == s.cron.UID && slices.Equal(cron.Status.CurrentImports, []cdiv1.ImportStatus{*s.current}) {
		return true, nil
	}
	s.sooner(busyRetry)
	return false, nil
}

// imports returns what there is of a DataImportCron's imports: claims and snapshots.
func (r *Reconciler) imports(ctx context.Context, cron *cdiv1.DataImportCron) ([]client.Object, error) {
	of := []client.ListOption{client.InNamespace(cron.Namespace), client.MatchingLabels{LabelCron: cron.Name}}
	var claims corev1.PersistentVolumeClaimList
	if err := r.List(ctx, &claims, of...); err != nil {
		return nil, fmt.Errorf("listing the claims of DataImportCron %s: %w", cron.Name, err)
	}
	var snapshots snapshotv1.VolumeSnapshotList
	if err := r.live.List(ctx, &snapshots, of...); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("listing the snapshots of DataImportCron %s: %w", cron.Name, err)
	}
	var all []client.Object
	for i := range claims.Items {
		all = append(all, &claims.Items[i])
	}
	for i := range snapshots.Items {
		all = append(all, &snapshots.Items[i])
	}
	return all, nil
}

// superfluous returns what goes of imports when keep stay, current among them. A snapshot that is there of current beside
// its claim, since others are kept as something else now, goes in any case; the claim beside its snapshot goes by
// releaseClaim, and that of an older one, which was needed then, does here. What has the name next, which is about to be
// imported or taken up again, does not go.
func superfluous(imports []client.Object, current client.Object, next string, keep int) []client.Object {
	var old, twins []client.Object
	kept := keptAsSnapshots(imports)
	for _, o := range imports {
		_, isClaim := o.(*corev1.PersistentVolumeClaim)
		switch {
		case o.GetDeletionTimestamp() != nil || o.GetUID() == current.GetUID():
		case o.GetName() == current.GetName():
			if !isClaim {
				twins = append(twins, o)
			}
		case o.GetName() == next:
		case isClaim && kept[o.GetName()]:
			twins = append(twins, o)
		default:
			old = append(old, o)
		}
	}
	slices.SortFunc(old, func(a, b client.Object) int {
		if order := lastUse(b).Compare(lastUse(a)); order != 0 {
			return order
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
	return append(twins, old[min(len(old), max(keep-1, 0)):]...)
}

// keptAsSnapshots are the names of imports of which there are snapshots that are ready.
func keptAsSnapshots(imports []client.Object) map[string]bool {
	kept := map[string]bool{}
	for _, o := range imports {
		if snapshot, is := o.(*snapshotv1.VolumeSnapshot); is && snapshot.DeletionTimestamp == nil && ready(snapshot) {
			kept[o.GetName()] = true
		}
	}
	return kept
}

func lastUse(object client.Object) time.Time {
	return timeOf(object.GetAnnotations()[AnnotationLastUse])
}

// discard deletes an import: a snapshot, or the DataVolume of a claim, with which that goes, or a claim that has none.
func (r *Reconciler) discard(ctx context.Context, object client.Object) error {
	name, uid := object.GetName(), object.GetUID()
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind == kindDataVolume {
		object = &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: owner.Name}}
		uid = owner.UID
	}
	if err := r.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the old import %s: %w", name, err)
	}
	return nil
}
