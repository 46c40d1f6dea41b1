// Package copytemplate copies a template under another name or into another namespace.
package copytemplate

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/once"
	"github.com/slipway-vm/slipway/tasks/vmtemplate"
)

// Exit codes that clients know.
const (
	codeGeneric = 1
	codeCopy    = 3
	codeResults = 4
)

// Task is the task's declaration.
func Task() *declare.Task {
	kind := vmtemplate.Param()
	return &declare.Task{
		Name:    "copy-template",
		Title:   "Copy a template",
		Summary: "Copies a Template (template.openshift.io) or a VirtualMachineTemplate (template.kubevirt.io), to be changed or to belong to a team.",
		Details: `
The copy is of the source's kind and has the label template.kubevirt.io/type: vm, by which consoles show it. Of a common template (label
template.kubevirt.io/type: base) it leaves out what only that may say: its operating system, flavor, workload, version, provider and support, on
the template and on the VirtualMachine in it. What ties an object to a GitOps tool, an operator or kubectl is never copied, else that tool
would delete or revert the copy.

Without targetTemplateName the copy's name is made of the source's; a retry of the same TaskRun gets the same name. A template of the target's name is an
error (already exists), unless this TaskRun made it, or allowReplace is set: then its content, labels and annotations are replaced.

Exit codes: 1 no connection, 3 the template could not be copied, 4 results, 255 a parameter is wrong.`,
		Image:      declare.Slipway,
		ClientCode: codeGeneric,
		Params: []declare.Param{
			{Name: "sourceTemplateName", Description: "Name of the template to copy.", Required: true, Kind: "vm-template-name", Object: vmtemplate.Hint},
			{Name: "sourceTemplateNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "vm-template-namespace"},
			{Name: "targetTemplateName", Description: "Name of the copy; by default one is made of the source's."},
			{Name: "targetTemplateNamespace", Description: "Namespace of the copy; by default the TaskRun's.", Kind: "namespace"},
			{Name: "allowReplace", Description: "Replace a template of the target's name.", Default: "false", Kind: "boolean"},
			{Name: "setOwnerReference", Description: "Make the run own the copy, so that it goes with the run.", Default: "false", Kind: "boolean"},
			kind,
		},
		Results: []declare.Result{
			{Name: "name", Description: "Name of the copy."},
			{Name: "namespace", Description: "Namespace of the copy."},
		},
		Rules: vmtemplate.Rules("get", "create", "update"),
		Examples: []declare.Example{{
			Title: "A copy that replaces the one of last time",
			Params: map[string]any{
				"sourceTemplateName": "example-template", "targetTemplateName": "our-template", "allowReplace": "true",
			},
		}},
		Run: run,
	}
}

// options are the task's parameters, checked.
type options struct {
	source, target client.ObjectKey
	kind           string
	replace, own   bool
}

func readOptions(call *declare.Call) (options, error) {
	o := options{
		source: client.ObjectKey{Namespace: call.NamespaceOr("sourceTemplateNamespace"), Name: call.Name("sourceTemplateName")},
		target: client.ObjectKey{Namespace: call.NamespaceOr("targetTemplateNamespace"), Name: call.Name("targetTemplateName")},
		kind:   call.String(vmtemplate.ParamKind),
	}
	var errs [3]error
	o.replace, errs[0] = call.Bool("allowReplace")
	o.own, errs[1] = call.Bool("setOwnerReference")
	errs[2] = vmtemplate.CheckKind(o.kind)
	if o.source.Name == "" {
		return o, errors.New("source-template-name param has to be specified")
	}
	return o, errors.Join(errs[:]...)
}

func run(ctx context.Context, call *declare.Call) error {
	o, err := readOptions(call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	source, err := vmtemplate.Get(ctx, call.Client, o.kind, o.source)
	if err != nil {
		return declare.Coded(codeCopy, err)
	}
	c, err := duplicate(source, o.target)
	if err != nil {
		return declare.Coded(codeCopy, err)
	}
	if o.own {
		owner, err := call.OwnerIn(o.target.Namespace)
		if err != nil {
			return declare.Coded(declare.CodeUsage, err)
		}
		c.template.SetOwnerReferences(append(c.template.GetOwnerReferences(), owner))
	}
	if err := write(ctx, call, o, c); err != nil {
		return declare.Coded(codeCopy, err)
	}
	return declare.Coded(codeResults, errors.Join(call.Result("name", c.template.GetName()), call.Result("namespace", c.template.GetNamespace())))
}

// write makes the copy, or replaces the template of its name.
func write(ctx context.Context, call *declare.Call, o options, c *duplicated) error {
	if o.replace && o.target.Name != "" {
		c.named(o.target.Name)
		_, err := vmtemplate.Update(ctx, call.Client, c.template.GetKind(), o.target, func(live *unstructured.Unstructured) error {
			replace(live, c.template)
			return nil
		})
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := once.Create(ctx, call, c.template, c.named)
	return err
}

// replace gives live the content of template, and leaves to live what the API server says of it.
func replace(live, template *unstructured.Unstructured) {
	kept := []string{"apiVersion", "kind", "metadata", "status"}
	for key := range live.Object {
		if !slices.Contains(kept, key) {
			delete(live.Object, key)
		}
	}
	for key, value := range template.DeepCopy().Object {
		if !slices.Contains(kept, key) {
			live.Object[key] = value
		}
	}
	live.SetLabels(template.GetLabels())
	live.SetAnnotations(template.GetAnnotations())
	live.SetOwnerReferences(template.GetOwnerReferences())
}
