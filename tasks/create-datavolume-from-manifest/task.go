// Package createdatavolumefrommanifest is the field's earlier task for DataVolumes, under its name:
// what it did, modify-data-object does.
package createdatavolumefrommanifest

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/slipway-vm/slipway/tasks/declare"
	modifydataobject "github.com/slipway-vm/slipway/tasks/modify-data-object"
)

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "create-datavolume-from-manifest",
		Title:   "Create a DataVolume",
		Summary: "Creates a DataVolume, and waits until it is filled.",
		Details: `
This is [modify-data-object](../modify-data-object/README.md) under the name, and with the parameters, that pipelines for
earlier releases of the field's tasks use. Write new pipelines with modify-data-object.

Exit codes: 1 the API could not be reached, 2 the DataVolume could not be made or did not become ready, 3 results, 255 a
parameter is wrong.`,
		Image: declare.Slipway,
		Params: []declare.Param{
			{Name: "manifest", Description: "YAML of the DataVolume. Its name may be generated (generateName).", Required: true, Kind: "resource-yaml", Object: declare.DataVolume},
			{Name: "waitForSuccess", Description: "Wait until the DataVolume is filled.", Default: "false", Kind: "boolean"},
			{Name: "timeout", Description: "The longest time for the task, waits included.", Default: "1h", Kind: "duration"},
		},
		Results: []declare.Result{
			{Name: "name", Description: "Name of the DataVolume."},
			{Name: "namespace", Description: "Its namespace."},
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list", "watch", "delete"}},
		},
		Examples: []declare.Example{{
			Title: "Make an empty disk",
			Params: map[string]any{
				"waitForSuccess": "true",
				"manifest": `apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata:
  generateName: blank-
  annotations:
    cdi.kubevirt.io/storage.bind.immediate.requested: "true"
spec:
  source:
    blank: {}
  storage:
    resources:
      requests:
        storage: 1Gi
`,
			},
		}},
		Run: modifydataobject.DataVolume,
	}
}
