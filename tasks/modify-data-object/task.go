// Package modifydataobject creates, replaces or deletes a DataVolume or DataSource.
package modifydataobject

import (
	"context"
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// Exit codes that clients know.
const (
	codeCreate  = 2
	codeResults = 3
	codeDelete  = 4
)

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "modify-data-object",
		Title:   "Modify a data object",
		Summary: "Creates, replaces or deletes a DataVolume or a DataSource, and waits until it is ready.",
		Details: `
With waitForSuccess the task watches a DataVolume until it Succeeded and tells its progress, or a DataSource until
it is Ready. A DataVolume that failed, or whose import failed more than three times, ends the wait with its reason.

A retry of the same TaskRun takes up the object that its earlier try made. With allowReplace an existing DataVolume is
deleted with its claim, and made anew; an existing DataSource is changed in place. Without it an existing object is an error.

Exit codes: 2 the object could not be made or did not become ready, 3 results, 4 deletion, 255 a parameter is wrong.`,
		Image: declare.Slipway,
		Params: []declare.Param{
			{Name: "manifest", Description: "YAML of the DataVolume or DataSource. Its name may be generated (generateName).", Kind: "yaml"},
			{Name: "namespace", Description: "Namespace of the object; by default the manifest's, or the TaskRun's.", Kind: "namespace"},
			{Name: "waitForSuccess", Description: "Wait until the object is ready.", Default: "false", Kind: "boolean"},
			{Name: "allowReplace", Description: "Replace an object of the same name.", Default: "false", Kind: "boolean"},
			{Name: "deleteObject", Description: "Delete the object that deleteObjectKind and deleteObjectName name, instead of making one.", Default: "false", Kind: "boolean"},
			{Name: "deleteObjectKind", Description: "DataVolume, DataSource or PersistentVolumeClaim."},
			{Name: "deleteObjectName", Description: "Name of the object to delete.", Kind: "name"},
			{Name: "timeout", Description: "The longest wait for the object.", Default: "1h", Kind: "duration"},
			{Name: "setOwnerReference", Description: "Make the TaskRun own the object, so that the object goes with it.", Default: "false", Kind: "boolean"},
		},
		Results: []declare.Result{
			{Name: "name", Description: "Name of the object."},
			{Name: "namespace", Description: "Namespace of the object."},
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes", "datasources"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list", "watch", "delete"}},
		},
		Examples: []declare.Example{{
			Title: "Import a disk and wait for it",
			Params: map[string]any{
				"waitForSuccess": "true",
				"manifest": `apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata:
  generateName: debian-
  annotations:
    cdi.kubevirt.io/storage.bind.immediate.requested: "true"
spec:
  source:
    http:
      url: https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2
  storage:
    resources:
      requests:
        storage: 5Gi
`,
			},
		}},
		Run: run,
	}
}

func run(ctx context.Context, call *declare.Call) error {
	o, err := readOptions(call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errors.New("timed out waiting for the condition"))
		defer cancel()
	}
	if o.remove {
		return declare.Coded(codeDelete, removeObject(ctx, call, o))
	}
	object, err := decode(o.manifest)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	object.SetNamespace(call.NamespaceOr("namespace", object.GetNamespace()))
	made, err := create(ctx, call, o, object)
	if err != nil {
		return declare.Coded(codeCreate, err)
	}
	if err := errors.Join(call.Result("name", made.GetName()), call.Result("namespace", made.GetNamespace())); err != nil {
		return declare.Coded(codeResults, err)
	}
	if !o.wait {
		return nil
	}
	return declare.Coded(codeCreate, waitReady(ctx, call, made))
}
