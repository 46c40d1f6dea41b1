package hyperconverged

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
)

// asker are the KubeVirt and the CDI object, which say what components are to be; nil is one that says nothing.
type asker struct {
	kubevirt *virtv1.KubeVirt
	cdi      *cdiv1.CDI
}

// askerOf are both objects as HyperConverged wants them: the first two of operands.
func askerOf(operands []*unstructured.Unstructured) (asker, error) {
	asked := asker{kubevirt: &virtv1.KubeVirt{}, cdi: &cdiv1.CDI{}}
	for i, into := range []any{asked.kubevirt, asked.cdi} {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(operands[i].Object, into); err != nil {
			return asker{}, fmt.Errorf("reading what %s is to be: %w", operands[i].GetKind(), err)
		}
	}
	return asked, nil
}

// judge says whether components can be what an object asks for.
type judge struct {
	options Options
	// reader has the HyperConverged object, which says the rest of what components are planned as; nil for one that says nothing.
	reader client.Reader
	// try has the API server judge an object; nil where there is none.
	try func(context.Context, *unstructured.Unstructured) error
}

// components returns what is wrong with the components that now asks for, and was not with those of before.
func (j judge) components(ctx context.Context, now, before asker) (field.ErrorList, error) {
	hco := &hcov1.HyperConverged{}
	if j.reader != nil {
		err := j.reader.Get(ctx, client.ObjectKey{Namespace: j.options.Namespace, Name: names.HyperConvergedName}, hco)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading HyperConverged %s: %w", names.HyperConvergedName, err)
		}
	}
	planned, made, errs, err := j.made(hco, now)
	if err != nil {
		return nil, err
	}
	_, former, had, err := j.made(hco, before)
	if err != nil {
		return nil, err
	}
	errs = slices.DeleteFunc(errs, func(problem *field.Error) bool {
		return slices.ContainsFunc(had, func(old *field.Error) bool { return old.Error() == problem.Error() })
	})
	if len(errs) > 0 || j.try == nil {
		return errs, nil
	}
	for i, object := range made {
		if sameJSON(object.Object, former[i].Object) {
			continue
		}
		refusal := j.try(ctx, object)
		if !isRefusal(refusal) {
			continue // what else happened happens to the operator, too, which tries again
		}
		at := customizedPath
		if object == planned[i] || isRefusal(j.try(ctx, planned[i])) {
			at = placementPath(object)
		}
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("%s %s could not be deployed: %s", object.GetKind(), object.GetName(), refusal)))
	}
	return errs, nil
}

// made are the components as they are planned, and as they are made of that, for asked.
func (j judge) made(hco *hcov1.HyperConverged, asked asker) (planned, made []*unstructured.Unstructured, errs field.ErrorList, err error) {
	if planned, err = plan(hco, infraOf(asked.kubevirt, asked.cdi), j.options.Values()); err != nil {
		return nil, nil, nil, err
	}
	made, errs = customize(planned, asked.kubevirt, asked.cdi, j.options.Programs)
	return planned, made, errs, nil
}

// isRefusal says whether the API server refused an object for what it is.
func isRefusal(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// placementPath is where the object that a component is deployed for says of the component's nodes.
func placementPath(object *unstructured.Unstructured) *field.Path {
	switch {
	case isCDIs(object):
		return field.NewPath("spec", "infra")
	case slices.ContainsFunc(components.All, func(c components.Component) bool {
		return c.Name == object.GetLabels()[LabelComponent] && c.Placement == components.Workload
	}):
		return field.NewPath("spec", "workloads", "nodePlacement")
	}
	return field.NewPath("spec", "infra", "nodePlacement")
}
