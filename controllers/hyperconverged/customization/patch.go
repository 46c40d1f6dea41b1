package customization

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// mostCopied bounds what operations of a JSON patch may copy, in bytes: copies of copies grow without end.
const mostCopied = 1 << 20

// patchable makes objects of the kinds that patches change. Others, such as webhooks, could keep the API server from taking a patch back.
var patchable = map[string]func() runtime.Object{
	"Deployment": func() runtime.Object { return &appsv1.Deployment{} },
	"DaemonSet":  func() runtime.Object { return &appsv1.DaemonSet{} },
	"Service":    func() runtime.Object { return &corev1.Service{} },
}

// apply puts in the place of those among objects that p is for what it makes of them.
func (p Patch) apply(objects []*unstructured.Unstructured, path *field.Path) field.ErrorList {
	if errs := p.check(path); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	found := false
	for i, object := range objects {
		fresh, can := patchable[object.GetKind()]
		if !can || !matches(p.Kind, object.GetKind()) || !matches(p.Name, object.GetName()) {
			continue
		}
		found = true
		changed, err := p.changed(object, fresh())
		if err != nil {
			errs = append(errs, invalid(path.Child("patch"), "it does not apply to %s: %s", named(object), err))
			continue
		}
		objects[i] = changed
	}
	if !found {
		return field.ErrorList{field.NotSupported(path.Child("resourceName"), p.Name, namesOf(objects, p.Kind))}
	}
	return errs
}

// check returns what is wrong with p itself.
func (p Patch) check(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	kinds := append(slices.Sorted(maps.Keys(patchable)), all)
	if !slices.ContainsFunc(kinds, func(kind string) bool { return strings.EqualFold(p.Kind, kind) }) {
		errs = append(errs, field.NotSupported(path.Child("resourceType"), p.Kind, kinds))
	}
	switch p.Type {
	case "json", "merge", "strategic":
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), p.Type, []string{"json", "merge", "strategic"}))
	}
	var content any
	if err := json.Unmarshal([]byte(p.Text), &content); err != nil {
		return append(errs, invalid(path.Child("patch"), "it is not JSON: %s", err))
	}
	_, isList := content.([]any)
	_, isMap := content.(map[string]any)
	switch {
	case p.Type == "json" && !isList:
		errs = append(errs, invalid(path.Child("patch"), `a JSON patch (RFC 6902) is a list of operations, such as [{"op":"remove","path":"/spec/template/spec/tolerations"}]`))
	case p.Type != "json" && !isMap:
		errs = append(errs, invalid(path.Child("patch"), `a %s patch is a part of the object, such as {"metadata":{"annotations":{"a":"b"}}}`, p.Type))
	}
	return errs
}

// changed is object as p makes it. Into is of its Go type, and empty.
func (p Patch) changed(object *unstructured.Unstructured, into runtime.Object) (*unstructured.Unstructured, error) {
	original, err := json.Marshal(object.Object)
	if err != nil {
		return nil, errors.New("it cannot be encoded")
	}
	var content []byte
	switch p.Type {
	case "json":
		content, err = operate(original, p.Text)
	case "merge":
		content, err = jsonpatch.MergePatch(original, []byte(p.Text))
	default:
		content, err = strategicpatch.StrategicMergePatch(original, []byte(p.Text), into)
		err = withoutContent(err)
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names patch and object
	}
	result := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(content, &result.Object); err != nil || result.Object == nil {
		return nil, errors.New("no object is left")
	}
	if err := keepsIdentity(object, result); err != nil {
		return nil, err
	}
	// A field that there is not would be dropped by nobody and refused by the API server.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(result.DeepCopy().Object, into, true); err != nil {
		return nil, err //nolint:wrapcheck // the caller names patch and object
	}
	return result, nil
}

// operate applies the operations of a JSON patch.
func operate(original []byte, text string) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch([]byte(text))
	if err != nil {
		if reason := errors.Unwrap(err); reason != nil {
			err = reason // which is wrapped in the operation, and that may have what is secret
		}
		return nil, err //nolint:wrapcheck // the caller names patch and object
	}
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit = mostCopied
	return operations.ApplyWithOptions(original, options) //nolint:wrapcheck // the caller names patch and object
}

// withoutContent is err without the item of a list that it quotes, for that may have what is secret.
func withoutContent(err error) error {
	if err == nil {
		return nil
	}
	if _, key, is := strings.Cut(err.Error(), "does not contain declared merge key: "); is {
		return errors.New("an item of a list has no " + key + ", by which the list is merged")
	}
	return err
}

// fixed are the fields by which the operator, and what it deploys, know an object.
var fixed = [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}, {"spec", "selector"}}

// keepsIdentity refuses that what the operator would not find any more, or could not apply, comes of before.
func keepsIdentity(before, after *unstructured.Unstructured) error {
	var problems []string
	for _, path := range fixed {
		if path[0] == "spec" && before.GetKind() == "Service" {
			continue
		}
		if !same(valueAt(before, path), valueAt(after, path)) {
			problems = append(problems, strings.Join(path, "."))
		}
	}
	for key, value := range before.GetLabels() {
		if after.GetLabels()[key] != value {
			problems = append(problems, "metadata.labels["+key+"]")
		}
	}
	if valueAt(after, []string{"status"}) != nil {
		problems = append(problems, "status")
	}
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return errors.New("it changes " + strings.Join(problems, ", ") + ", by which the operator knows the object; leave that as it is")
}

// valueAt is the value at path; nil for none.
func valueAt(object *unstructured.Unstructured, path []string) any {
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	if err != nil {
		return nil
	}
	return value
}

// same says whether two values are the same in JSON.
func same(a, b any) bool {
	left, errLeft := json.Marshal(a)
	right, errRight := json.Marshal(b)
	return errLeft == nil && errRight == nil && string(left) == string(right)
}

// namesOf are the names of those among objects that are of kind and can be patched.
func namesOf(objects []*unstructured.Unstructured, kind string) []string {
	var all []string
	for _, object := range objects {
		if _, can := patchable[object.GetKind()]; can && matches(kind, object.GetKind()) {
			all = append(all, object.GetName())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
