package modifydataobject

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// labelRun marks what a TaskRun made, by which its retry finds it.
const labelRun = names.Domain + "taskrun-uid"

// fieldManager owns what the task writes.
const fieldManager = "modify-data-object"

// create makes the object, or takes up the one that an earlier try of this TaskRun made.
func create(ctx context.Context, call *declare.Call, o options, object client.Object) (client.Object, error) {
	if o.own {
		owner, err := call.Owner()
		if err != nil {
			return nil, err
		}
		object.SetOwnerReferences(append(object.GetOwnerReferences(), owner))
	}
	if call.TaskRunUID != "" {
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelRun] = string(call.TaskRunUID)
		object.SetLabels(labels)
		earlier, err := madeBefore(ctx, call, object)
		if earlier != nil || err != nil {
			return earlier, err
		}
	}
	kind := fmt.Sprintf("%s %s", kindOf(object), call.NamespaceOr("namespace", object.GetNamespace())+"/"+object.GetName()+object.GetGenerateName())
	call.Log.Info("creating " + kind)
	err := call.Client.Create(ctx, object, client.FieldOwner(fieldManager))
	if apierrors.IsAlreadyExists(err) && o.replace {
		return object, replace(ctx, call, object)
	}
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", kind, err)
	}
	return object, nil
}

// madeBefore returns the object of this kind that an earlier try of the TaskRun made, or nil.
func madeBefore(ctx context.Context, call *declare.Call, object client.Object) (client.Object, error) {
	in := []client.ListOption{client.InNamespace(object.GetNamespace()), client.MatchingLabels{labelRun: string(call.TaskRunUID)}}
	var found []client.Object
	var err error
	switch object.(type) {
	case *cdiv1.DataVolume:
		var list cdiv1.DataVolumeList
		err = call.Client.List(ctx, &list, in...)
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	case *cdiv1.DataSource:
		var list cdiv1.DataSourceList
		err = call.Client.List(ctx, &list, in...)
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("looking for what an earlier try made: %w", err)
	}
	for _, f := range found {
		if f.GetDeletionTimestamp() == nil && (f.GetName() == object.GetName() || object.GetName() == "") {
			call.Log.Info("an earlier try made it", "kind", kindOf(object), "name", f.GetName())
			return f, nil
		}
	}
	return nil, nil
}

// replace puts the object in place of the one of its name: a DataSource is changed, a DataVolume deleted and made anew.
func replace(ctx context.Context, call *declare.Call, object client.Object) error {
	key := client.ObjectKeyFromObject(object)
	if source, ok := object.(*cdiv1.DataSource); ok {
		source.ResourceVersion = ""
		call.Log.Info("changing DataSource", "name", key.String())
		return apply.Object(ctx, call.Client, source, fieldManager)
	}
	call.Log.Info("replacing DataVolume", "name", key.String())
	if err := removeDataVolume(ctx, call, key); err != nil {
		return err
	}
	object.SetResourceVersion("")
	object.SetUID("")
	if err := call.Client.Create(ctx, object, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("creating DataVolume %s anew: %w", key, err)
	}
	return nil
}

// removeDataVolume deletes a DataVolume and the claim of its name, and waits until both are gone.
func removeDataVolume(ctx context.Context, call *declare.Call, key client.ObjectKey) error {
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	volume, claim := &cdiv1.DataVolume{ObjectMeta: meta}, &corev1.PersistentVolumeClaim{ObjectMeta: meta}
	for _, object := range []client.Object{volume, claim} {
		if err := call.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s %s: %w", kindOf(object), key, err)
		}
	}
	err := await.Object(ctx, call.Client, &cdiv1.DataVolumeList{}, key, func(_ *cdiv1.DataVolume, exists bool) (bool, error) { return !exists, nil })
	if err != nil {
		return stillThere(ctx, volume, key, err)
	}
	err = await.Object(ctx, call.Client, &corev1.PersistentVolumeClaimList{}, key, func(_ *corev1.PersistentVolumeClaim, exists bool) (bool, error) { return !exists, nil })
	if err != nil {
		return stillThere(ctx, claim, key, err)
	}
	return nil
}

func stillThere(ctx context.Context, object client.Object, key client.ObjectKey, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return fmt.Errorf("waiting until %s %s is gone, which a pod or VM may still use: %w", kindOf(object), key, err)
}

// removeObject deletes the object that the parameters name and waits until it is gone; one that is gone already is no error.
func removeObject(ctx context.Context, call *declare.Call, o options) error {
	object := newObject(o.removeKind)
	if object == nil {
		return fmt.Errorf("deleteObjectKind: %q is not known; DataVolume, DataSource and PersistentVolumeClaim are", o.removeKind)
	}
	key := client.ObjectKey{Namespace: call.NamespaceOr("namespace"), Name: o.removeName}
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	call.Log.Info("deleting "+o.removeKind, "name", key.String())
	if err := call.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", o.removeKind, key, err)
	}
	var err error
	switch object.(type) {
	case *cdiv1.DataVolume:
		err = await.Object(ctx, call.Client, &cdiv1.DataVolumeList{}, key, func(_ *cdiv1.DataVolume, exists bool) (bool, error) { return !exists, nil })
	case *cdiv1.DataSource:
		err = await.Object(ctx, call.Client, &cdiv1.DataSourceList{}, key, func(_ *cdiv1.DataSource, exists bool) (bool, error) { return !exists, nil })
	default:
		err = await.Object(ctx, call.Client, &corev1.PersistentVolumeClaimList{}, key, func(_ *corev1.PersistentVolumeClaim, exists bool) (bool, error) { return !exists, nil })
	}
	if err != nil {
		return stillThere(ctx, object, key, err)
	}
	return errors.Join(call.Result("name", key.Name), call.Result("namespace", key.Namespace))
}

// kindOf names the kind of an object for messages.
func kindOf(object client.Object) string {
	switch object.(type) {
	case *cdiv1.DataVolume:
		return "DataVolume"
	case *cdiv1.DataSource:
		return "DataSource"
	}
	return "PersistentVolumeClaim"
}
