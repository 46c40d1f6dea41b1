package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/slipway-vm/slipway/internal/scheme"
)

// poor is a client whose ServiceAccount may get objects and nothing else.
func poor(objects ...client.Object) (client.WithWatch, *frugal) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "virtualmachines"}, "x", nil)
	full := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build()
	refused := interceptor.NewClient(full, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbidden
		},
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			return nil, forbidden
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return forbidden
		},
	})
	return full, &frugal{WithWatch: refused, log: slog.New(slog.DiscardHandler), task: "modify-data-object"}
}

func vm(name string) *virtv1.VirtualMachine {
	return &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

// What may not be listed or watched is read, when it is one object by its name.
func TestOneObjectIsReadThatMayNotBeWatched(t *testing.T) {
	full, f := poor(vm("web"))
	one := []client.ListOption{client.InNamespace("shop"), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, "web")}}
	var list virtv1.VirtualMachineList
	if err := f.List(t.Context(), &list, one...); err != nil || len(list.Items) != 1 || list.Items[0].Name != "web" {
		t.Fatalf("listed %v, %v", list.Items, err)
	}
	if err := f.List(t.Context(), &list, client.InNamespace("shop")); !apierrors.IsForbidden(err) {
		t.Errorf("all of them: %v", err)
	}
	l := &look{client: f, list: &virtv1.VirtualMachineList{}, key: client.ObjectKey{Namespace: "shop", Name: "web"}, version: list.ResourceVersion}
	next := func() *watch.Event {
		event, err := l.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return event
	}
	if event := next(); event != nil {
		t.Errorf("nothing happened: %v", event)
	}
	changed := list.Items[0].DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	if err := full.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if event := next(); event == nil || event.Type != watch.Modified {
		t.Errorf("it was changed: %v", event)
	}
	if err := full.Delete(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if event := next(); event == nil || event.Type != watch.Deleted {
		t.Errorf("it was deleted: %v", event)
	}
	if event := next(); event != nil {
		t.Errorf("it stays so: %v", event)
	}
	if err := full.Create(t.Context(), vm("web")); err != nil {
		t.Fatal(err)
	}
	if event := next(); event == nil || event.Type != watch.Added {
		t.Errorf("another was made: %v", event)
	}
	late := &look{client: f, list: l.list, key: client.ObjectKey{Namespace: "shop", Name: "gone"}, version: "7"}
	if event, err := late.next(t.Context()); err != nil || event.Type != watch.Deleted || event.Object.(client.Object).GetName() != "gone" {
		t.Errorf("it went before the first look: %v, %v", event, err)
	}
}

func TestAMissingRightIsNamed(t *testing.T) {
	_, f := poor(vm("web"))
	err := f.Patch(t.Context(), vm("web"), client.RawPatch("application/merge-patch+json", []byte("{}")))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the verb patch on virtualmachines.kubevirt.io") {
		t.Errorf("error %v", err)
	}
}
