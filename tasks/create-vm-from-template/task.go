// Package createvmfromtemplate creates a VirtualMachine from a template: a Template of
// OpenShift's group, or a VirtualMachineTemplate.
package createvmfromtemplate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	templatev1 "github.com/openshift/api/template/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/catalog/template"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/newvm"
	"github.com/slipway-vm/slipway/tasks/vmtemplate"
)

// Task is the task's declaration.
func Task() *declare.Task {
	shared := newvm.Params()
	return &declare.Task{
		Name:    "create-vm-from-template",
		Title:   "Create a VM from a template",
		Summary: "Fills in the parameters of a Template (template.openshift.io) or a VirtualMachineTemplate (template.kubevirt.io) and creates its VirtualMachine.",
		Details: `
The template is found by its name, in whichever of the two groups the cluster serves; VirtualMachineTemplates of v1beta1 and v1alpha1 are taken.

Parameters are read strictly: a required one without a value, a value for none, and a reference to none are errors. What shall stay ${NAME} for
the guest's shell is written $${NAME}. Values that the template generates are random enough for a password.

Other objects of the template are created first, marked as the VirtualMachine is; the ServiceAccount needs the right to. The VirtualMachine carries
the labels vm.kubevirt.io/template and vm.kubevirt.io/template.namespace, and those of the template that name its operating system, workload and flavor.
` + newvm.Details + `

Exit codes: 1 the template or its parameters are wrong, ` + newvm.Codes,
		Image:      declare.Slipway,
		ClientCode: newvm.CodeGeneric,
		Params: slices.Concat([]declare.Param{
			{Name: "templateName", Description: "Name of the template.", Required: true, Kind: "vm-template-name", Object: vmtemplate.Hint},
			{Name: "templateNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "vm-template-namespace"},
			vmtemplate.Param(),
			{Name: "templateParams", Description: "Values of the template's parameters, each as KEY:VALUE; an item without a colon continues the value before it after a space.", Array: true, Kind: "template-params-array"},
			{Name: "vmNamespace", Description: "Namespace of the VirtualMachine; by default the template's VirtualMachine's, or the TaskRun's.", Kind: "namespace"},
		}, shared),
		Results: newvm.Results(),
		Rules:   slices.Concat(vmtemplate.Rules("get"), newvm.Rules()),
		Examples: []declare.Example{
			{
				Title: "A VM with a name",
				Params: map[string]any{
					"templateName":   "example-template",
					"templateParams": []string{"NAME:example-vm"},
					"startVM":        "true",
				},
			},
			{
				Title: "From a VirtualMachineTemplate of another namespace",
				Params: map[string]any{
					"templateName":      "example-template",
					"templateNamespace": "catalog",
					"templateKind":      "VirtualMachineTemplate",
					"templateParams":    []string{"NAME:example-vm", "MOTD:hello", "world"},
				},
			},
		},
		Run: run,
	}
}

func run(ctx context.Context, call *declare.Call) error {
	values, err := declare.Pairs(call.Array("templateParams"))
	if err != nil {
		return newvm.Usage(fmt.Errorf("invalid template-params: %w", err))
	}
	if err := vmtemplate.CheckKind(call.String(vmtemplate.ParamKind)); err != nil {
		return newvm.Usage(err)
	}
	if call.Name("templateName") == "" { // in the words of the field's program, which three tasks share
		return newvm.Usage(errors.New("only one of vm-manifest, template-name or virtctl should be specified: templateName is empty; name a template"))
	}
	tmpl, err := read(ctx, call)
	if err != nil {
		return declare.Coded(newvm.CodeGeneric, err)
	}
	vm, beside, err := process(call, tmpl, values)
	if err != nil {
		return declare.Coded(newvm.CodeGeneric, err)
	}
	return newvm.Create(ctx, call, vm, beside)
}

// read finds the template, of either kind.
func read(ctx context.Context, call *declare.Call) (*templatev1.Template, error) {
	key := client.ObjectKey{
		Namespace: call.NamespaceOr("templateNamespace"),
		Name:      call.Name("templateName"),
	}
	found, err := vmtemplate.Get(ctx, call.Client, call.String(vmtemplate.ParamKind), key)
	if err != nil {
		return nil, err
	}
	if found.GetKind() == vmtemplate.KindVirtualMachineTemplate {
		return template.FromVirtualMachineTemplate(found)
	}
	tmpl := &templatev1.Template{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, tmpl); err != nil {
		return nil, fmt.Errorf("reading Template %s: %w", key, err)
	}
	return tmpl, nil
}

// process fills the template in and returns its VM and the objects beside it, with their namespaces.
func process(call *declare.Call, tmpl *templatev1.Template, values map[string]string) (*virtv1.VirtualMachine, []*unstructured.Unstructured, error) {
	processed, err := template.Process(tmpl, values)
	if err != nil {
		return nil, nil, err
	}
	if len(processed.Unused) > 0 {
		call.Log.Warn("the template declares parameters that nothing in it refers to", "parameters", processed.Unused)
	}
	if processed.Message != "" {
		call.Log.Info("the template says", "message", processed.Message)
	}
	vm, beside, err := split(processed.Objects)
	if err != nil {
		return nil, nil, err
	}
	vm.Namespace = call.NamespaceOr("vmNamespace", vm.Namespace)
	for _, object := range beside {
		if object.GetNamespace() == "" {
			object.SetNamespace(vm.Namespace)
		}
	}
	if vm.Spec.Template != nil { // else newvm says so
		describe(vm, tmpl)
	}
	return vm, beside, nil
}

// split picks the one VirtualMachine from the objects.
func split(objects []*unstructured.Unstructured) (*virtv1.VirtualMachine, []*unstructured.Unstructured, error) {
	isVM := func(o *unstructured.Unstructured) bool {
		return o.GroupVersionKind().Group == virtv1.SchemeGroupVersion.Group && o.GetKind() == virtv1.VirtualMachineGroupVersionKind.Kind
	}
	i := slices.IndexFunc(objects, isVM)
	if i < 0 {
		return nil, nil, errors.New("no VM object found in the template")
	}
	beside := slices.Concat(objects[:i], objects[i+1:])
	if slices.ContainsFunc(beside, isVM) {
		return nil, nil, errors.New("the template has more than one VirtualMachine, and the task's result is one; split the template")
	}
	vm := &virtv1.VirtualMachine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[i].Object, vm, true); err != nil {
		return nil, nil, fmt.Errorf("reading the template's VirtualMachine: %w", err)
	}
	return vm, beside, nil
}
