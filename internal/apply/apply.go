// Package apply writes objects by server-side apply, the only way in which
// Slipway's controllers write: one field manager per writer, no read-modify-write.
package apply

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Object applies obj whole, as manager. The fields that obj leaves out (nil, or
// empty and omitempty) are not claimed, so another manager's values in them stay. Conflicts are
// forced: each field set has one owner, and a foreign edit of it is overwritten.
// Status, managedFields and resourceVersion of obj are not sent.
func Object(ctx context.Context, c client.Client, obj client.Object, manager string) error {
	u, err := bare(c.Scheme(), obj)
	if err != nil {
		return fmt.Errorf("applying %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	delete(u.Object, "status")
	if err := send(ctx, c, u, manager); err != nil {
		return err
	}
	obj.SetUID(u.GetUID())
	obj.SetResourceVersion(u.GetResourceVersion())
	return nil
}

// Fields applies fields (paths of the object's own JSON, such as "status") to the
// existing object obj on its main resource, as manager. It names obj's uid, so a
// deleted object is never created again: the API server answers Conflict then.
// Zero values are dropped; what the manager applied before and leaves out now is removed.
func Fields(ctx context.Context, c client.Client, obj client.Object, manager string, fields map[string]any) error {
	_, err := FieldsAndRead(ctx, c, obj, manager, fields)
	return err
}

// FieldsAndRead is Fields, and returns the object as the API server has it after that.
func FieldsAndRead(ctx context.Context, c client.Client, obj client.Object, manager string, fields map[string]any) (*unstructured.Unstructured, error) {
	u, err := partial(c.Scheme(), obj, fields)
	if err != nil {
		return nil, fmt.Errorf("applying fields of %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	return u, send(ctx, c, u, manager) // which reads the answer into it
}

// Status applies status to the status subresource of the existing object obj, as manager.
func Status(ctx context.Context, c client.Client, obj client.Object, manager string, status any) error {
	return applyStatus(ctx, c, obj, manager, map[string]any{"status": status})
}

// StatusAsRead is Status for an object that nobody has written since obj was read; the API server
// answers Conflict otherwise. It is for what must not be said twice by a reader that lags behind.
func StatusAsRead(ctx context.Context, c client.Client, obj client.Object, manager string, status any) error {
	return applyStatus(ctx, c, obj, manager, map[string]any{
		"status": status, "metadata": map[string]any{"resourceVersion": obj.GetResourceVersion()},
	})
}

func applyStatus(ctx context.Context, c client.Client, obj client.Object, manager string, fields map[string]any) error {
	u, err := partial(c.Scheme(), obj, fields)
	if err != nil {
		return fmt.Errorf("applying status of %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	config := client.ApplyConfigurationFromUnstructured(u)
	if err := c.Status().Apply(ctx, config, client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying status of %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

func send(ctx context.Context, c client.Client, u *unstructured.Unstructured, manager string) error {
	config := client.ApplyConfigurationFromUnstructured(u)
	if err := c.Apply(ctx, config, client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

// bare converts obj to the map that apply sends: its kind, no server-side metadata, no nulls.
func bare(scheme *runtime.Scheme, obj client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, fmt.Errorf("finding its kind: %w", err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("converting it: %w", err)
	}
	u := &unstructured.Unstructured{Object: content}
	for _, field := range []string{"creationTimestamp", "managedFields", "resourceVersion", "generation", "uid"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	u.Object, _ = WithoutNulls(u.Object).(map[string]any)
	u.SetGroupVersionKind(gvk)
	return u, nil
}

func partial(scheme *runtime.Scheme, obj client.Object, fields map[string]any) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, fmt.Errorf("finding its kind: %w", err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	for name, value := range fields {
		content, err := toJSONValue(value)
		if err != nil {
			return nil, fmt.Errorf("converting %s: %w", name, err)
		}
		if kept := WithoutZero(content); kept != nil {
			u.Object[name] = kept
		}
	}
	u.SetGroupVersionKind(gvk)
	u.SetName(obj.GetName())
	u.SetNamespace(obj.GetNamespace())
	u.SetUID(obj.GetUID())
	return u, nil
}
