// Package modifyvmtemplate changes a template: its parameters, its labels, and the
// VirtualMachine in it. It can delete one too.
package modifyvmtemplate

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/vmtemplate"
)

// Exit codes that clients know.
const (
	codeUsage   = 1
	codeModify  = 2
	codeUpdate  = 3
	codeResults = 4
)

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "modify-vm-template",
		Title:   "Modify a template",
		Summary: "Changes the parameters, labels and VirtualMachine of a Template (template.openshift.io) or a VirtualMachineTemplate (template.kubevirt.io).",
		Details: `
Items of disks, volumes, datavolumeTemplates and templateParameters are JSON objects. One replaces what has its name, else it is added. What the
delete parameters name goes before anything is added. Items are read strictly, unless they refer to a template's parameter by ${{NAME}}, which may stand for a number.

The template is written as it was read, with the changes: a write of another in between is kept, and the changes are made anew. A retry changes nothing more.

With deleteTemplate all other parameters are ignored. A template that does not exist is an error then, except in a retry: an earlier try deleted it.

Exit codes: 1 a parameter is wrong, 2 the template cannot be changed so, 3 it could not be read or written, 4 results.`,
		Image:      declare.Slipway,
		ClientCode: codeUsage,
		Params: append([]declare.Param{
			{Name: "templateName", Description: "Name of the template.", Required: true, Kind: "vm-template-name", Object: vmtemplate.Hint},
			{Name: "templateNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "vm-template-namespace"},
			vmtemplate.Param(),
			{Name: "cpuSockets", Description: "Number of CPU sockets; 0 changes nothing.", Default: "0"},
			{Name: "cpuCores", Description: "Number of CPU cores in a socket; 0 changes nothing.", Default: "0"},
			{Name: "cpuThreads", Description: "Number of threads in a core; 0 changes nothing.", Default: "0"},
			{Name: "memory", Description: "Memory of the VirtualMachine, such as 4Gi."},
		}, listParams()...),
		Results: []declare.Result{
			{Name: "name", Description: "Name of the template."},
			{Name: "namespace", Description: "Namespace of the template."},
		},
		Rules: vmtemplate.Rules("get", "update", "delete"),
		Examples: []declare.Example{
			{
				Title: "More memory and another disk",
				Params: map[string]any{
					"templateName":   "our-template",
					"memory":         "4Gi",
					"cpuCores":       "2",
					"templateLabels": []string{"team:builds"},
					"disks":          []string{`{"name": "data", "disk": {"bus": "virtio"}}`},
					"volumes":        []string{`{"name": "data", "persistentVolumeClaim": {"claimName": "${DATA_PVC}"}}`},
					"templateParameters": []string{
						`{"name": "DATA_PVC", "description": "Claim with the data", "required": true}`,
					},
				},
			},
			{Title: "Delete it", Params: map[string]any{"templateName": "our-template", "deleteTemplate": "true"}},
		},
		Run: run,
	}
}

// listParams are the parameters that are lists, and those that empty the lists before.
func listParams() []declare.Param {
	pairs := func(name, what string) declare.Param {
		return declare.Param{Name: name, Array: true, Description: what + ", each as KEY:VALUE; one of the same key is replaced."}
	}
	items := func(name, what string) declare.Param {
		return declare.Param{Name: name, Array: true, Description: what + ", each as JSON; one of the same name is replaced, else it is added."}
	}
	remove := func(name, what string) declare.Param {
		return declare.Param{Name: name, Description: "Delete " + what + ".", Default: "false", Kind: "boolean"}
	}
	return []declare.Param{
		pairs("templateLabels", "Labels of the template"),
		pairs("templateAnnotations", "Annotations of the template"),
		pairs("vmLabels", "Labels of the VirtualMachine"),
		pairs("vmAnnotations", "Annotations of the VirtualMachine"),
		items("disks", "Disks of the VirtualMachine"),
		remove("deleteDisks", "the VirtualMachine's disks, before those of disks are added"),
		items("volumes", "Volumes of the VirtualMachine"),
		remove("deleteVolumes", "the VirtualMachine's volumes, before those of volumes are added"),
		items("datavolumeTemplates", "DataVolume templates of the VirtualMachine"),
		remove("deleteDatavolumeTemplate", "the VirtualMachine's DataVolume templates with their volumes and disks, before those of datavolumeTemplates are added"),
		items("templateParameters", "Parameters of the template"),
		remove("deleteTemplateParameters", "the template's parameters, before those of templateParameters are added"),
		remove("deleteTemplate", "the template itself; all other parameters are ignored"),
	}
}

func run(ctx context.Context, call *declare.Call) error {
	key := client.ObjectKey{Namespace: call.NamespaceOr("templateNamespace"), Name: call.Name("templateName")}
	kind := call.String(vmtemplate.ParamKind)
	if key.Name == "" {
		return usage(errors.New("template-name param has to be specified"))
	}
	if err := vmtemplate.CheckKind(kind); err != nil {
		return usage(err)
	}
	remove, err := call.Bool("deleteTemplate")
	if err != nil {
		return usage(err)
	}
	if remove {
		err = removeTemplate(ctx, call, kind, key)
	} else {
		err = modifyTemplate(ctx, call, kind, key)
	}
	if err != nil {
		return err
	}
	return declare.Coded(codeResults, errors.Join(call.Result("name", key.Name), call.Result("namespace", key.Namespace)))
}

// usage gives err the exit code of wrong parameters, also where err has another.
func usage(err error) error { return &declare.Exit{Code: codeUsage, Err: err} }

func modifyTemplate(ctx context.Context, call *declare.Call, kind string, key client.ObjectKey) error {
	c, err := readChange(call)
	if err != nil {
		return usage(err)
	}
	call.Log.Info("modifying the template", "name", key.String())
	_, err = vmtemplate.Update(ctx, call.Client, kind, key, func(template *unstructured.Unstructured) error {
		return declare.Coded(codeModify, c.apply(template))
	})
	return declare.Coded(codeUpdate, err)
}

func removeTemplate(ctx context.Context, call *declare.Call, kind string, key client.ObjectKey) error {
	found, err := vmtemplate.Get(ctx, call.Client, kind, key)
	if err == nil {
		call.Log.Info("deleting "+found.GetKind(), "name", key.String())
		err = call.Client.Delete(ctx, found)
	}
	if apierrors.IsNotFound(err) && call.Retry {
		call.Log.Info("an earlier try deleted the template", "name", key.String())
		return nil
	}
	if err != nil {
		return declare.Coded(codeUpdate, fmt.Errorf("deleting template %s: %w", key, err))
	}
	return nil
}
