package modifydataobject

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
)

// newObject makes an empty object of the kind, nil for a kind that the task does not handle.
func newObject(kind string) client.Object {
	switch kind {
	case "DataVolume":
		return &cdiv1.DataVolume{}
	case "DataSource":
		return &cdiv1.DataSource{}
	case "PersistentVolumeClaim":
		return &corev1.PersistentVolumeClaim{}
	}
	return nil
}

// kindOf names the kind of an object.
func kindOf(object client.Object) string {
	switch object.(type) {
	case *cdiv1.DataVolume:
		return "DataVolume"
	case *cdiv1.DataSource:
		return "DataSource"
	}
	return "PersistentVolumeClaim"
}

// named returns an object of the kind with the name alone.
func named(kind string, key client.ObjectKey) client.Object {
	object := newObject(kind)
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	return object
}

// read gets the object of the kind; one that does not exist is nil.
func read(ctx context.Context, c client.Client, kind string, key client.ObjectKey) (client.Object, error) {
	object := newObject(kind)
	err := c.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absence is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s %s: %w", kind, key, err)
	}
	return object, nil
}

// remove deletes the object, and waits until it is gone. When it has a uid, an object of its name that
// has another is not touched.
func remove(ctx context.Context, c client.WithWatch, object client.Object) error {
	kind, key := kindOf(object), client.ObjectKeyFromObject(object)
	options := &client.DeleteOptions{}
	if uid := object.GetUID(); uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err := c.Delete(ctx, object, options)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("deleting %s %s: it is gone, and another of its name already exists; run the task again", kind, key)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", kind, key, err)
	}
	uid := object.GetUID()
	switch object.(type) {
	case *cdiv1.DataVolume:
		err = await.Object(ctx, c, &cdiv1.DataVolumeList{}, key, gone[*cdiv1.DataVolume](uid))
	case *cdiv1.DataSource:
		err = await.Object(ctx, c, &cdiv1.DataSourceList{}, key, gone[*cdiv1.DataSource](uid))
	default:
		err = await.Object(ctx, c, &corev1.PersistentVolumeClaimList{}, key, gone[*corev1.PersistentVolumeClaim](uid))
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: waited until %s %s is gone, which a pod or VM may still use", context.Cause(ctx), kind, key)
	}
	if err != nil {
		return fmt.Errorf("waiting until %s %s is gone: %w", kind, key, err)
	}
	return nil
}

// gone is the end of a wait for the object of the uid; an empty uid stands for any.
func gone[T client.Object](uid types.UID) await.Check[T] {
	return func(object T, exists bool) (bool, error) {
		return !exists || uid != "" && object.GetUID() != uid, nil
	}
}

// errTimeout is why the task's context ends, in the words that clients know.
var errTimeout = errors.New("timed out waiting for the condition")
