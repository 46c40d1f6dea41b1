package env

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// State looks at an object and says in words what it is like, and whether that is what was
// awaited; an error ends the wait.
type State func(obj client.Object) (words string, done bool, err error)

// Await watches the object that obj names until state says that it is as awaited, at most for
// bound, and prints to out each state that it goes through. On failure it prints everything
// about the object's namespace that helps to understand why.
func (c *Cluster) Await(ctx context.Context, out io.Writer, obj client.Object, bound time.Duration, state State) error {
	kind, err := c.Client.GroupVersionKindFor(obj)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	what := fmt.Sprintf("%s %s", kind.Kind, client.ObjectKeyFromObject(obj))
	last := "absent"
	fmt.Fprintf(out, "waiting for %s, at most %s\n", what, bound)
	begun := time.Now()
	see := func(found client.Object) (bool, error) {
		words, done, err := "absent", false, error(nil)
		if found != nil {
			words, done, err = state(found)
		}
		if words != last {
			last = words
			fmt.Fprintf(out, "  %6.1fs %s: %s\n", time.Since(begun).Seconds(), what, words)
		}
		return done, err
	}
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if err := c.watch(bounded, obj, see); err != nil {
		took := time.Since(begun).Round(time.Second)
		ctx := context.WithoutCancel(ctx)
		c.Dump(ctx, out, obj.GetNamespace())
		return fmt.Errorf("waiting %s for %s, which is %s%s: %w", took, what, last, c.lastWords(ctx, obj), err)
	}
	return nil
}

func (c *Cluster) watch(ctx context.Context, obj client.Object, see func(client.Object) (bool, error)) error {
	list, err := c.listOf(obj)
	if err != nil {
		return err
	}
	selected := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{
			Namespace: obj.GetNamespace(), Raw: &o,
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, obj.GetName()),
		}
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			found := list.DeepCopyObject().(client.ObjectList)
			return found, c.Client.List(ctx, found, selected(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Client.Watch(ctx, list.DeepCopyObject().(client.ObjectList), selected(o))
		},
	}
	first := func(store cache.Store) (bool, error) {
		for _, item := range store.List() {
			return see(item.(client.Object))
		}
		return see(nil)
	}
	_, err = watchtools.UntilWithSync(ctx, source, obj.DeepCopyObject(), first, func(event watch.Event) (bool, error) {
		if event.Type == watch.Deleted {
			return see(nil)
		}
		return see(event.Object.(client.Object))
	})
	return err
}

// listOf makes an empty list of obj's kind.
func (c *Cluster) listOf(obj client.Object) (client.ObjectList, error) {
	kind, err := c.Client.GroupVersionKindFor(obj)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	kind.Kind += "List"
	made, err := c.Client.Scheme().New(kind)
	if err != nil {
		return nil, fmt.Errorf("making a %s: %w", kind.Kind, err)
	}
	list, ok := made.(client.ObjectList)
	if !ok || !meta.IsListType(made) {
		return nil, fmt.Errorf("%s is no list", kind.Kind)
	}
	return list, nil
}

// Gone waits until obj is deleted, at most for bound.
func (c *Cluster) Gone(ctx context.Context, out io.Writer, obj client.Object, bound time.Duration) error {
	key := client.ObjectKeyFromObject(obj)
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	fmt.Fprintf(out, "waiting until %T %s is gone, at most %s\n", obj, key, bound)
	err := c.watch(bounded, obj, func(found client.Object) (bool, error) { return found == nil, nil })
	if err != nil {
		c.Dump(context.WithoutCancel(ctx), out, obj.GetNamespace())
		return fmt.Errorf("waiting %s until %T %s is gone: %w", bound, obj, key, err)
	}
	return nil
}
