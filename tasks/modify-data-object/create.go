package modifydataobject

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// labelRun marks what a TaskRun made, by which its retry finds it.
const labelRun = names.Domain + "taskrun-uid"

// fieldManager owns what the task writes.
const fieldManager = "modify-data-object"

// create makes the object, or takes up the one that an earlier try of this TaskRun made. Each write
// either made the object with the TaskRun's mark or did nothing, so a task that is ended anywhere
// and tried again comes to the same end.
func create(ctx context.Context, call *declare.Call, o options, object client.Object) (client.Object, error) {
	if err := prepare(call, o, object); err != nil {
		return nil, err
	}
	if source, ok := object.(*cdiv1.DataSource); ok {
		if err := release(ctx, call, source); err != nil {
			return nil, err
		}
	}
	earlier, err := madeBefore(ctx, call, object)
	if err != nil {
		return nil, err
	}
	if earlier != nil && !hasFailed(earlier) {
		call.Log.Info("an earlier try made it", "kind", kindOf(object), "name", earlier.GetName())
		return earlier, nil
	}
	if earlier != nil {
		call.Log.Info("an earlier try made it, and it failed; making it anew", "kind", kindOf(object), "name", earlier.GetName())
		if err := evict(ctx, call, client.ObjectKeyFromObject(earlier)); err != nil {
			return nil, err
		}
		return object, post(ctx, call, object)
	}
	if !o.replace || object.GetName() == "" {
		return object, post(ctx, call, object)
	}
	if source, ok := object.(*cdiv1.DataSource); ok {
		return source, put(ctx, call, source)
	}
	if err := evict(ctx, call, client.ObjectKeyFromObject(object)); err != nil {
		return nil, err
	}
	return object, post(ctx, call, object)
}

// prepare gives the object its owner and the mark of the TaskRun.
func prepare(call *declare.Call, o options, object client.Object) error {
	if o.own {
		owner, err := call.OwnerIn(object.GetNamespace())
		if err != nil {
			return declare.Coded(declare.CodeUsage, err)
		}
		object.SetOwnerReferences(append(object.GetOwnerReferences(), owner))
	}
	if call.TaskRunUID != "" {
		metav1.SetMetaDataLabel(metaOf(object), labelRun, string(call.TaskRunUID))
	}
	return nil
}

func metaOf(object client.Object) *metav1.ObjectMeta {
	if source, ok := object.(*cdiv1.DataSource); ok {
		return &source.ObjectMeta
	}
	return &object.(*cdiv1.DataVolume).ObjectMeta //nolint:forcetypeassert // decode makes no other
}

// madeBefore returns the object of this kind that an earlier try of the TaskRun made, or nil. CDI may
// have collected a finished DataVolume and left its claim, which has the mark too.
func madeBefore(ctx context.Context, call *declare.Call, object client.Object) (client.Object, error) {
	if call.TaskRunUID == "" {
		return nil, nil //nolint:nilnil // there are no tries
	}
	lists := []client.ObjectList{&cdiv1.DataVolumeList{}, &corev1.PersistentVolumeClaimList{}}
	if _, ok := object.(*cdiv1.DataSource); ok {
		lists = []client.ObjectList{&cdiv1.DataSourceList{}}
	}
	in := []client.ListOption{client.InNamespace(object.GetNamespace()), client.MatchingLabels{labelRun: string(call.TaskRunUID)}}
	for _, list := range lists {
		if err := call.Client.List(ctx, list, in...); err != nil {
			return nil, fmt.Errorf("looking for what an earlier try made: %w", err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return nil, fmt.Errorf("looking for what an earlier try made: %w", err)
		}
		for _, item := range items {
			found, ok := item.(client.Object)
			if ok && found.GetDeletionTimestamp() == nil && (found.GetName() == object.GetName() || object.GetName() == "") {
				return found, nil
			}
		}
	}
	return nil, nil
}

// hasFailed says whether the object is a DataVolume that came to a bad end: a retry is there to try it again.
func hasFailed(object client.Object) bool {
	volume, ok := object.(*cdiv1.DataVolume)
	return ok && volume.Status.Phase == cdiv1.Failed
}

// post creates the object, and fails when one of its name exists.
func post(ctx context.Context, call *declare.Call, object client.Object) error {
	name := object.GetNamespace() + "/" + object.GetName() + object.GetGenerateName()
	call.Log.Info("creating "+kindOf(object), "name", name)
	if err := call.Client.Create(ctx, object, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("creating %s %s: %w", kindOf(object), name, err)
	}
	return nil
}

// evict deletes the DataVolume of the name and its claim, or a claim alone, and waits until they are gone.
func evict(ctx context.Context, call *declare.Call, key client.ObjectKey) error {
	for _, kind := range []string{"DataVolume", "PersistentVolumeClaim"} {
		object, err := read(ctx, call.Client, kind, key)
		if err != nil {
			return err
		}
		if object == nil {
			continue
		}
		call.Log.Info("removing "+kind+" to make it anew", "name", key.String())
		if err := remove(ctx, call.Client, object); err != nil {
			return err
		}
	}
	return nil
}

// put applies the DataSource, whether one of its name exists or not. It keeps its uid, and who
// clones from it meanwhile gets the old disk or the new one. What others set in its spec goes:
// a DataSource has one source.
func put(ctx context.Context, call *declare.Call, source *cdiv1.DataSource) error {
	key := client.ObjectKeyFromObject(source)
	call.Log.Info("applying DataSource", "name", key.String())
	if err := apply.Object(ctx, call.Client, source.DeepCopy(), fieldManager); err != nil {
		return err
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		present := &cdiv1.DataSource{}
		if err := call.Client.Get(ctx, key, present); err != nil {
			return err //nolint:wrapcheck // wrapped below; RetryOnConflict looks for API errors
		}
		if equality.Semantic.DeepEqual(present.Spec, source.Spec) {
			return nil
		}
		present.Spec = source.Spec
		return call.Client.Update(ctx, present, client.FieldOwner(fieldManager))
	})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("applying DataSource %s: it was deleted meanwhile", key)
	}
	if err != nil {
		return fmt.Errorf("replacing the source of DataSource %s: %w", key, err)
	}
	return nil
}

// removeObject deletes the object that the parameters name and waits until it is gone; one that is gone already is no error.
func removeObject(ctx context.Context, call *declare.Call, o options) error {
	key := client.ObjectKey{Namespace: call.NamespaceOr("namespace"), Name: o.removeName}
	call.Log.Info("deleting "+o.removeKind, "name", key.String())
	return remove(ctx, call.Client, named(o.removeKind, key))
}
