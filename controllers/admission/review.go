package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// review is a request with its objects decoded. Both served versions have the same
// schema, so the objects are decoded into the one Go type that there is.
type review[T any] struct {
	request *admission.Request
	object  *T
	// old is nil for a creation.
	old *T
	// raw is the object as JSON has it.
	raw map[string]any
}

// decode reads request's objects.
func decode[T any](request *admission.Request) (*review[T], error) {
	r := &review[T]{request: request, object: new(T)}
	if err := json.Unmarshal(request.Object.Raw, r.object); err != nil {
		return nil, fmt.Errorf("decoding the object: %w", err)
	}
	if err := json.Unmarshal(request.Object.Raw, &r.raw); err != nil {
		return nil, fmt.Errorf("decoding the object: %w", err)
	}
	if request.Operation == admissionv1.Update {
		r.old = new(T)
		if err := json.Unmarshal(request.OldObject.Raw, r.old); err != nil {
			return nil, fmt.Errorf("decoding the old object: %w", err)
		}
	}
	return r, nil
}

// validator makes a webhook of a function that says what is wrong.
func validator[T any](validate func(context.Context, *review[T]) (field.ErrorList, error)) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		r, err := decode[T](&request)
		if err != nil {
			return undecodable(&request, err)
		}
		errs, err := validate(ctx, r)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if len(errs) == 0 {
			return admission.Allowed("")
		}
		return refused(&request, errs)
	})
}

// refused answers with what is wrong, as the API server says it of its own kinds.
func refused(request *admission.Request, errs field.ErrorList) admission.Response {
	kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
	status := apierrors.NewInvalid(kind, request.Name, errs).Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &status}}
}

// undecodable names the field whose value the schema lets through and the Go type does not have,
// such as a negative number of what can only be counted.
func undecodable(request *admission.Request, err error) admission.Response {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || strings.Trim(wrong.Field, ".") == "" {
		return admission.Errored(http.StatusBadRequest, err)
	}
	names := slices.DeleteFunc(strings.Split(wrong.Field, "."), func(name string) bool {
		return name != "" && unicode.IsUpper(rune(name[0])) // an embedded Go type, which JSON does not have
	})
	problem := field.Invalid(field.NewPath(names[0], names[1:]...), wrong.Value, fmt.Sprintf("does not fit the field, which is of type %s", wrong.Type))
	return refused(request, field.ErrorList{problem})
}

// mutator makes a webhook of a function that completes an object.
func mutator[T any](complete func(*T)) admission.Handler {
	return admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		r, err := decode[T](&request)
		if err != nil {
			return undecodable(&request, err)
		}
		changed, err := change(request.Object.Raw, r.object, complete)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(request.Object.Raw, changed)
	})
}

// change returns raw with what complete changes in object, and nothing else: the
// empty values that the Go types write out of themselves stay away.
func change[T any](raw []byte, object *T, complete func(*T)) ([]byte, error) {
	before, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	complete(object)
	after, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the completed object: %w", err)
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("comparing the object with the completed one: %w", err)
	}
	changed, err := jsonpatch.MergePatch(raw, patch)
	if err != nil {
		return nil, fmt.Errorf("completing the object: %w", err)
	}
	return changed, nil
}
