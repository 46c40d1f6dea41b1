// Package once creates an object for a TaskRun: one, however often the run is retried.
package once

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// AnnotationRun marks what a TaskRun made, by which its retry knows it. It is no label: an object's
// labels stay those of its manifest, to the last one.
const AnnotationRun = names.Domain + "taskrun-uid"

// manager owns the fields that tasks write.
const manager = "slipway-tasks"

const (
	alphabet   = "bcdfghjklmnpqrstvwxz2456789" // that of names that Kubernetes generates
	maxBase    = 58
	suffixSize = 5
	attempts   = 5
)

// Create makes object, or returns the one that an earlier try of this TaskRun made in it,
// and says so. A foreign object of its name is an AlreadyExists error. A generateName becomes
// a name that is the same in every try; named, if any, is called with each name before it is used.
func Create(ctx context.Context, call *declare.Call, object client.Object, named func(name string)) (earlier bool, err error) {
	gvk, err := apiutil.GVKForObject(object, call.Client.Scheme())
	if err != nil {
		return false, fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	if call.TaskRunUID != "" {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AnnotationRun] = string(call.TaskRunUID)
		object.SetAnnotations(annotations)
	}
	generate := object.GetName() == "" && object.GetGenerateName() != "" && call.TaskRunUID != ""
	base := object.GetGenerateName()
	for attempt := range attempts {
		if generate {
			object.SetGenerateName("")
			object.SetName(generated(base, call.TaskRunUID, attempt))
		}
		if named != nil && object.GetName() != "" {
			named(object.GetName())
		}
		earlier, err = try(ctx, call, object, gvk)
		if !generate || !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("creating %s %s/%s: %w", gvk.Kind, object.GetNamespace(), object.GetName()+object.GetGenerateName(), err)
	}
	return earlier, nil
}

func try(ctx context.Context, call *declare.Call, object client.Object, gvk schema.GroupVersionKind) (earlier bool, err error) {
	if object.GetName() != "" && call.TaskRunUID != "" {
		made, err := existing(ctx, call, object, gvk)
		if made || err != nil {
			return made, err
		}
	}
	call.Log.Info("creating "+gvk.Kind, "name", object.GetNamespace()+"/"+object.GetName()+object.GetGenerateName())
	return false, call.Client.Create(ctx, object, client.FieldOwner(manager)) //nolint:wrapcheck // Create above says what was done
}

// existing reads the object of that name into object when this TaskRun made it. A foreign one is an error.
func existing(ctx context.Context, call *declare.Call, object client.Object, gvk schema.GroupVersionKind) (bool, error) {
	found, ok := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(object).Elem()))
	if !ok {
		return false, fmt.Errorf("%T is no object", object)
	}
	found.GetObjectKind().SetGroupVersionKind(gvk)
	taken := apierrors.NewAlreadyExists(schema.GroupResource{Group: gvk.Group, Resource: plural(gvk.Kind)}, object.GetName())
	err := call.Client.Get(ctx, client.ObjectKeyFromObject(object), found)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking for that of an earlier try: %w", err)
	case found.GetAnnotations()[AnnotationRun] != string(call.TaskRunUID):
		return false, fmt.Errorf("it is not of this TaskRun: %w", taken)
	case found.GetDeletionTimestamp() != nil:
		return false, fmt.Errorf("that of an earlier try is being deleted: %w", taken)
	}
	call.Log.Info("an earlier try made the "+gvk.Kind, "name", client.ObjectKeyFromObject(found).String())
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(found).Elem())
	return true, nil
}

// plural is the resource of a kind, as the API server names it in its messages.
func plural(kind string) string { return strings.ToLower(kind) + "s" }

// generated is a name that Kubernetes could have generated, but the same for each try of a TaskRun.
func generated(base string, uid types.UID, attempt int) string {
	return base[:min(len(base), maxBase)] + Suffix(uid, attempt)
}

// Suffix returns the n-th end of a generated name for a TaskRun, five characters. A retry gets the same ones.
func Suffix(uid types.UID, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", uid, n))
	number := binary.BigEndian.Uint64(sum[:])
	var b strings.Builder
	for range suffixSize {
		b.WriteByte(alphabet[number%uint64(len(alphabet))])
		number /= uint64(len(alphabet))
	}
	return b.String()
}
