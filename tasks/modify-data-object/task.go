// Package modifydataobject creates, replaces or deletes a DataVolume or DataSource.
package modifydataobject

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/cached"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Exit codes that clients know.
const (
	codeClient  = 1
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

With allowReplace an existing DataVolume, and a claim of its name, are deleted and made anew once they are gone; an existing
DataSource is applied in place, so it never is absent. Without it an existing object is an error.

A retry of the same TaskRun takes up the object that its earlier try made, and makes one that failed anew. Deleting what is
gone already is no error.

A DataVolume that is imported from a URL, with waitForSuccess, is taken from the step cache when an earlier run imported the same:
the same checksum, or the same version of the file as the server tells it. docs/step-cache.md has all of it.

Exit codes: 1 the API could not be reached, 2 the object could not be made or did not become ready, 3 results, 4 deletion, 255 a
parameter is wrong.`,
		Image:      declare.Slipway,
		ClientCode: codeClient,
		Params: append([]declare.Param{
			{Name: "manifest", Description: "YAML of the DataVolume or DataSource. Its name may be generated (generateName).", Kind: "resource-yaml", Object: declare.DataVolume},
			{Name: "namespace", Description: "Namespace of the object; by default the manifest's, or the TaskRun's.", Kind: "namespace"},
			{Name: "waitForSuccess", Description: "Wait until the object is ready.", Default: "false", Kind: "boolean"},
			{Name: "allowReplace", Description: "Replace an object of the same name.", Default: "false", Kind: "boolean"},
			{Name: "deleteObject", Description: "Delete the object that deleteObjectKind and deleteObjectName name, instead of making one.", Default: "false", Kind: "boolean"},
			{Name: "deleteObjectKind", Description: "DataVolume, DataSource or PersistentVolumeClaim."},
			{Name: "deleteObjectName", Description: "Name of the object to delete."},
			{Name: "timeout", Description: "The longest time for the task, waits included.", Default: "1h", Kind: "duration"},
			{Name: "setOwnerReference", Description: "Make the TaskRun own the object, so that the object goes with it. Both must be in one namespace.", Default: "false", Kind: "boolean"},
		}, cached.Params()...),
		Results: append([]declare.Result{
			{Name: "name", Description: "Name of the object."},
			{Name: "namespace", Description: "Namespace of the object."},
		}, cached.Results()...),
		Rules: append([]rbacv1.PolicyRule{
			{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
			{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datasources"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list", "watch", "delete"}},
		}, cached.Rules()...),
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
	if _, err := cached.Read(call); err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	if o.remove {
		ctx, cancel := o.bounded(ctx)
		defer cancel()
		if err := removeObject(ctx, call, o); err != nil {
			return declare.Coded(codeDelete, timedOut(ctx, err))
		}
		return declare.Coded(codeResults, errors.Join(call.Result("name", o.removeName), call.Result("namespace", call.NamespaceOr("namespace"))))
	}
	object, err := decode(o.manifest)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	if volume, ok := object.(*cdiv1.DataVolume); ok && o.wait {
		return o.importCached(ctx, call, volume)
	}
	if err := cached.None(call); err != nil {
		return declare.Coded(codeResults, err)
	}
	return o.produce(ctx, call, object)
}

// importCached makes the DataVolume by the step cache where that has it, and waits for it.
func (o options) importCached(ctx context.Context, call *declare.Call, volume *cdiv1.DataVolume) error {
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	volume.SetNamespace(call.NamespaceOr("namespace", volume.GetNamespace()))
	_, err := cached.Import(ctx, call, volume, func(ctx context.Context, volume *cdiv1.DataVolume) (*cdiv1.DataVolume, error) {
		made, err := o.make(ctx, call, volume)
		if made == nil {
			return nil, err
		}
		if volume, ok := made.(*cdiv1.DataVolume); ok {
			return volume, err
		}
		// CDI collected the DataVolume of an earlier try: its claim is all that there is.
		return &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: made.GetNamespace(), Name: made.GetName()}}, err
	})
	return declare.Coded(codeCreate, timedOut(ctx, err))
}

// produce creates the object, writes the results, and waits if asked to.
func (o options) produce(ctx context.Context, call *declare.Call, object client.Object) error {
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	object.SetNamespace(call.NamespaceOr("namespace", object.GetNamespace()))
	_, err := o.make(ctx, call, object)
	return err
}

// make does what produce does, in a namespace that is set. What was made is returned with an error, too.
func (o options) make(ctx context.Context, call *declare.Call, object client.Object) (client.Object, error) {
	made, err := create(ctx, call, o, object)
	if err != nil {
		return nil, declare.Coded(codeCreate, timedOut(ctx, err))
	}
	if err := errors.Join(call.Result("name", made.GetName()), call.Result("namespace", made.GetNamespace())); err != nil {
		return made, declare.Coded(codeResults, err)
	}
	if !o.wait {
		return made, nil
	}
	return made, declare.Coded(codeCreate, waitReady(ctx, call, made))
}

// bounded limits a context by the timeout, if there is one.
func (o options) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, o.timeout, errTimeout)
}

// timedOut says of an error that came because the time was over, for one in the midst of a call
// to the API server tells of a deadline only.
func timedOut(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errTimeout) || errors.Is(err, errTimeout) {
		return err
	}
	return fmt.Errorf("%w: %w", errTimeout, err)
}

// DataVolume makes the DataVolume of the parameter manifest, and waits for it when waitForSuccess
// says so: all that the field's earlier task for DataVolumes did.
func DataVolume(ctx context.Context, call *declare.Call) error {
	wait, waitErr := call.Bool("waitForSuccess")
	timeout, timeoutErr := call.Duration("timeout")
	if err := errors.Join(waitErr, timeoutErr); err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	object, err := decode(call.String("manifest"))
	if err == nil && kindOf(object) != "DataVolume" {
		err = errors.New("could not identify data object, wrong group or kind: this task makes DataVolumes; modify-data-object makes others too")
	}
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	o := options{wait: wait, timeout: timeout}
	return o.produce(ctx, call, object)
}
