package modifydataobject

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// release lets the volume that the DataSource is about to publish outlive the run that owns it.
// It comes before the DataSource: one that refers to a volume which goes with its run would lose
// users an image that they had, and a volume too much can be deleted.
func release(ctx context.Context, call *declare.Call, source *cdiv1.DataSource) error {
	from := source.Spec.Source.PVC
	if from == nil || from.Namespace != "" && from.Namespace != source.Namespace {
		return nil // what is in another namespace, a TaskRun of this one cannot own
	}
	key := client.ObjectKey{Namespace: source.Namespace, Name: from.Name}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		volume := &cdiv1.DataVolume{}
		if err := call.Client.Get(ctx, key, volume); err != nil {
			return err //nolint:wrapcheck // wrapped below; RetryOnConflict looks for API errors
		}
		before := volume.DeepCopy()
		volume.OwnerReferences = slices.DeleteFunc(volume.OwnerReferences, func(owner metav1.OwnerReference) bool {
			return owner.Kind == "TaskRun" && volume.Labels[labelRun] == string(owner.UID)
		})
		if len(volume.OwnerReferences) == len(before.OwnerReferences) {
			return nil
		}
		call.Log.Info("the volume is published and stays when its run goes", "name", key.String())
		return call.Client.Patch(ctx, volume, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager))
	})
	if apierrors.IsNotFound(err) {
		return nil // a claim alone, or one that is not there yet
	}
	if err != nil {
		return fmt.Errorf("taking DataVolume %s from its run, since DataSource %s publishes it: %w", key, source.Name, err)
	}
	return nil
}
