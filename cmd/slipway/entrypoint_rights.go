package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lookInterval is how often an object is read that may not be watched.
const lookInterval = 3 * time.Second

// frugal is a client for the Roles of kubevirt-tekton-tasks, which lack verbs that our tasks use.
// Where one is refused it takes the way that their programs take. Whoever gives our Roles never gets here.
type frugal struct {
	client.WithWatch
	log *slog.Logger
	// task is the name of the task that it is for.
	task string
}

// Get reads an object. wait-for-vmi-status asks whether the VirtualMachine of an instance that is gone
// starts again; the program that it stands in for has no right to ask, and waits on.
func (f *frugal) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := f.WithWatch.Get(ctx, key, object, options...)
	vm, ok := object.(*virtv1.VirtualMachine)
	if !apierrors.IsForbidden(err) || !ok || f.task != "wait-for-vmi-status" {
		return err
	}
	f.log.Warn("the ServiceAccount may not read VirtualMachines; waiting for another instance", "name", key.String())
	strategy := virtv1.RunStrategyAlways
	vm.Spec.RunStrategy = &strategy
	return nil
}

// List lists objects. The one that is asked for by name is read when it may not be listed.
func (f *frugal) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := f.WithWatch.List(ctx, list, options...)
	key, named := nameIn(options)
	if !apierrors.IsForbidden(err) || !named {
		return err
	}
	object, getErr := f.read(ctx, list, key)
	if getErr != nil {
		return getErr
	}
	var items []runtime.Object
	version := "0" // that of no object
	if object != nil {
		items, version = append(items, object), object.GetResourceVersion()
	}
	list.SetResourceVersion(version)
	if err := meta.SetList(list, items); err != nil {
		return fmt.Errorf("listing %s: %w", key, err)
	}
	return nil
}

// Watch watches objects. The one that is asked for by name is read again and again when it may not be watched.
func (f *frugal) Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	found, err := f.WithWatch.Watch(ctx, list, options...)
	key, named := nameIn(options)
	raw := applied(options).Raw
	if !apierrors.IsForbidden(err) || !named || raw != nil && raw.SendInitialEvents != nil { // then a list follows
		return found, err
	}
	f.log.Warn("the ServiceAccount may not watch; reading it every "+lookInterval.String(), "name", key.String())
	version := ""
	if raw != nil {
		version = raw.ResourceVersion
	}
	events := make(chan watch.Event)
	watcher := watch.NewProxyWatcher(events)
	l := &look{client: f, list: list, key: key, version: version, events: events, stop: watcher.StopChan()}
	go l.run(ctx)
	return watcher, nil
}

// Patch patches an object. Their programs start and stop a VirtualMachine through its subresources, which Slipway does
// not serve: the right to patch it is the one that a Role has to be given.
func (f *frugal) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	err := f.WithWatch.Patch(ctx, object, patch, options...)
	if _, ok := object.(*virtv1.VirtualMachine); ok && apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; Slipway starts and stops VirtualMachines by their runStrategy: give the task's Role the verb patch on virtualmachines.kubevirt.io", err)
	}
	return err
}

// Update writes an object. One that may be patched and not updated gets the difference as a patch.
func (f *frugal) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	err := f.WithWatch.Update(ctx, object, options...)
	wanted, ok := object.(*unstructured.Unstructured)
	if !apierrors.IsForbidden(err) || !ok {
		return err
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(wanted.GroupVersionKind())
	if err := f.WithWatch.Get(ctx, client.ObjectKeyFromObject(wanted), live); err != nil {
		return err
	}
	live.SetResourceVersion(wanted.GetResourceVersion()) // the one that was changed: another is a conflict
	return f.WithWatch.Patch(ctx, wanted, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}))
}

// read returns the object of the list's kind that key names, or nil when there is none.
func (f *frugal) read(ctx context.Context, list client.ObjectList, key client.ObjectKey) (client.Object, error) {
	kind, err := f.GroupVersionKindFor(list)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", list, err)
	}
	kind.Kind = kind.Kind[:len(kind.Kind)-len("List")]
	made, err := f.Scheme().New(kind)
	if err != nil {
		return nil, fmt.Errorf("making a %s: %w", kind.Kind, err)
	}
	object, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", made)
	}
	err = f.WithWatch.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	return object, err
}

// look reads one object again and again, and tells of each change as a watch does.
type look struct {
	client  *frugal
	list    client.ObjectList
	key     client.ObjectKey
	version string
	// last is what was told last.
	last   client.Object
	events chan<- watch.Event
	stop   <-chan struct{}
}

func (l *look) run(ctx context.Context) {
	defer close(l.events)
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		event, err := l.next(ctx)
		if err != nil {
			return // who watches lists again, and gets the error there
		}
		if event != nil {
			select {
			case l.events <- *event:
			case <-l.stop:
				return
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-ticker.C:
		case <-l.stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// next is the change since the last time, nil for none.
func (l *look) next(ctx context.Context) (*watch.Event, error) {
	object, err := l.client.read(ctx, l.list, l.key)
	switch {
	case err != nil:
		return nil, err
	case object == nil && l.last == nil && (l.version == "" || l.version == "0"):
		return nil, nil //nolint:nilnil // there was none, and is none
	case object == nil && l.last == nil: // it went between the list and now
		object, err = l.gone()
		l.version, l.last = "0", nil
		return &watch.Event{Type: watch.Deleted, Object: object}, err
	case object == nil:
		event := &watch.Event{Type: watch.Deleted, Object: l.last}
		l.version, l.last = "0", nil
		return event, nil
	case object.GetResourceVersion() == l.version:
		l.last = object
		return nil, nil //nolint:nilnil // it is as it was
	}
	kind := watch.Modified
	if l.version == "" || l.version == "0" {
		kind = watch.Added
	}
	l.version, l.last = object.GetResourceVersion(), object
	return &watch.Event{Type: kind, Object: object}, nil
}

// gone is an object of which no more is known than its name.
func (l *look) gone() (client.Object, error) {
	kind, err := l.client.GroupVersionKindFor(l.list)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", l.list, err)
	}
	kind.Kind = kind.Kind[:len(kind.Kind)-len("List")]
	made, err := l.client.Scheme().New(kind)
	if err != nil {
		return nil, fmt.Errorf("making a %s: %w", kind.Kind, err)
	}
	object, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", made)
	}
	object.SetNamespace(l.key.Namespace)
	object.SetName(l.key.Name)
	object.SetResourceVersion(l.version)
	return object, nil
}

func applied(options []client.ListOption) *client.ListOptions {
	return (&client.ListOptions{}).ApplyOptions(options)
}

// nameIn is the one object that the options select by its name, if they do.
func nameIn(options []client.ListOption) (client.ObjectKey, bool) {
	o := applied(options)
	if o.FieldSelector == nil {
		return client.ObjectKey{}, false
	}
	name, ok := o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	return client.ObjectKey{Namespace: o.Namespace, Name: name}, ok
}
