// Package await waits for the state of one object by watching it: no polling, no
// fixed period, and a lost watch is taken up again.
package await

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Check looks at the object's present state, which is nil while it does not exist.
// It says whether the wait is over; an error ends the wait with that error.
type Check[T client.Object] func(obj T, exists bool) (done bool, err error)

// Object watches the object that key names until check says that the wait is over,
// or ctx ends. list is an empty list of the object's kind. The state is checked once
// at the start, also when the object does not exist, and at every change.
func Object[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, key client.ObjectKey, check Check[T]) error {
	var none T
	source := listWatch(ctx, c, list, key)
	first := func(store cache.Store) (bool, error) {
		items := store.List()
		if len(items) == 0 {
			return check(none, false)
		}
		obj, ok := items[0].(T)
		if !ok {
			return false, fmt.Errorf("watching %s: got a %T", key, items[0])
		}
		return check(obj, true)
	}
	each := func(event watch.Event) (bool, error) {
		obj, ok := event.Object.(T)
		switch {
		case event.Type == watch.Deleted:
			return check(none, false)
		case !ok:
			return false, fmt.Errorf("watching %s: got a %T", key, event.Object)
		}
		return check(obj, true)
	}
	sample, err := newOf[T](c, list)
	if err != nil {
		return fmt.Errorf("watching %s: %w", key, err)
	}
	if _, err := watchtools.UntilWithSync(ctx, source, sample, first, each); err != nil {
		return fmt.Errorf("waiting for %T %s: %w", sample, key, err)
	}
	return nil
}

// listWatch lists and watches the one object that key names.
func listWatch(ctx context.Context, c client.WithWatch, list client.ObjectList, key client.ObjectKey) cache.ListerWatcher {
	options := func(o metav1.ListOptions) *client.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String()
		return &client.ListOptions{
			Namespace:     key.Namespace,
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name),
			Raw:           &o,
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			found, ok := list.DeepCopyObject().(client.ObjectList)
			if !ok {
				return nil, fmt.Errorf("%T is no list", list)
			}
			if err := c.List(ctx, found, options(o)); err != nil {
				return nil, err //nolint:wrapcheck // the reflector looks for API errors
			}
			return found, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			found, ok := list.DeepCopyObject().(client.ObjectList)
			if !ok {
				return nil, fmt.Errorf("%T is no list", list)
			}
			return c.Watch(ctx, found, options(o))
		},
	}
}

// newOf makes an empty object of the kind that list holds.
func newOf[T client.Object](c client.Client, list client.ObjectList) (T, error) {
	var none T
	gvk, err := c.GroupVersionKindFor(list)
	if err != nil {
		return none, fmt.Errorf("finding the kind of %T: %w", list, err)
	}
	gvk.Kind = gvk.Kind[:len(gvk.Kind)-len("List")]
	made, err := c.Scheme().New(gvk)
	if err != nil {
		return none, fmt.Errorf("making a %s: %w", gvk.Kind, err)
	}
	obj, ok := made.(T)
	if !ok {
		return none, fmt.Errorf("%s is a %T, not the kind asked for", gvk.Kind, made)
	}
	return obj, nil
}
