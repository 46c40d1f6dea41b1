package dataimportcron

import (
	"context"
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
)

// ownerManager is the field manager of owners that imports get when they are there already.
const ownerManager = manager + "-owner"

// ownImports has imports go with the DataImportCron that were there before it: of one of its name that was deleted
// without them. It makes sure past the cache that the DataImportCron stays, for what is owned by none goes at once.
func (r *Reconciler) ownImports(ctx context.Context, s *scope) error {
	if !goes(s.cron) {
		return nil
	}
	imports, err := r.ownable(ctx, s.cron)
	if err != nil {
		return err
	}
	imports = slices.DeleteFunc(imports, func(o client.Object) bool { return o.GetDeletionTimestamp() != nil || owns(s.cron.UID, o) })
	if len(imports) == 0 {
		return nil
	}
	live, err := get(ctx, r.live, client.ObjectKeyFromObject(s.cron), &cdiv1.DataImportCron{})
	if err != nil || live == nil || live.UID != s.cron.UID || live.DeletionTimestamp != nil {
		return err
	}
	owner := map[string]any{"metadata": map[string]any{"ownerReferences": owners(s.cron)}}
	for _, o := range imports {
		if err := apply.Fields(ctx, r.Client, o, ownerManager, owner); err != nil {
			return fmt.Errorf("having %T %s go with its DataImportCron: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// ownable are the imports of a DataImportCron that have it as owner when they are to go with it. Claims go with
// their DataVolumes.
func (r *Reconciler) ownable(ctx context.Context, cron *cdiv1.DataImportCron) ([]client.Object, error) {
	of := []client.ListOption{client.InNamespace(cron.Namespace), client.MatchingLabels{LabelCron: cron.Name}}
	var volumes cdiv1.DataVolumeList
	if err := r.List(ctx, &volumes, of...); err != nil {
		return nil, fmt.Errorf("listing the DataVolumes of DataImportCron %s: %w", cron.Name, err)
	}
	var snapshots snapshotv1.VolumeSnapshotList
	if err := r.live.List(ctx, &snapshots, of...); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("listing the snapshots of DataImportCron %s: %w", cron.Name, err)
	}
	all := make([]client.Object, 0, len(volumes.Items)+len(snapshots.Items))
	for i := range volumes.Items {
		all = append(all, &volumes.Items[i])
	}
	for i := range snapshots.Items {
		all = append(all, &snapshots.Items[i])
	}
	return all, nil
}

// owns says whether what has the uid is among the owners of object.
func owns(uid types.UID, object client.Object) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == uid })
}
