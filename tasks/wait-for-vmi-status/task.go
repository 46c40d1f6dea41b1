// Package waitforvmistatus waits until a VirtualMachineInstance is as asked.
package waitforvmistatus

import (
	"context"
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// Exit codes that clients know.
const (
	codeFailureCondition = 2
	codeTimeout          = 3
	codeClient           = 254
)

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:       "wait-for-vmi-status",
		Title:      "Wait for a VM's status",
		Summary:    "Waits until a VirtualMachineInstance fulfils a condition, and fails when it fulfils another.",
		Details:    details,
		Image:      declare.Slipway,
		ClientCode: codeClient,
		Params: []declare.Param{
			{Name: "vmiName", Description: "Name of the VirtualMachineInstance to wait for.", Required: true, Object: declare.VirtualMachineInstance},
			{Name: "vmiNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "namespace"},
			{Name: "successCondition", Description: "Condition that ends the task with success, such as `status.phase == Running`.", Kind: "condition"},
			{Name: "failureCondition", Description: "Condition that ends the task with failure, such as `status.phase in (Failed, Unknown)`.", Kind: "condition"},
			{Name: "timeout", Description: "The longest wait; at its end the task fails and says what it saw last. By default until shortly before Tekton's own timeout of the TaskRun.", Kind: "duration"},
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachineinstances"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines"}, Verbs: []string{"get"}},
			declare.DeadlineRule(),
		},
		Examples: []declare.Example{
			{Title: "Wait until a VM runs", Params: map[string]any{
				"vmiName":          "example-vm",
				"successCondition": "status.phase == Running",
				"failureCondition": "status.phase in (Failed, Unknown)",
			}},
			{Title: "Wait for a condition with JSONPath", Params: map[string]any{
				"vmiName":          "example-vm",
				"successCondition": `jsonpath:{.status.conditions[?(@.type=="AgentConnected")].status}==True`,
				"timeout":          "20m",
			}},
			{Title: "Wait with CEL", Params: map[string]any{
				"vmiName":          "example-vm",
				"successCondition": `cel:status.phase == "Running" && status.conditions.exists(c, c.type == "Ready" && c.status == "True")`,
				"failureCondition": `cel:status.phase in ["Failed", "Unknown"]`,
			}},
		},
		Run: run,
	}
}

const details = `
A condition is written in one of three languages:

| begins with | language | holds |
|---|---|---|
| ` + "`jsonpath:`" + ` | ` + "`{path}`, `{path}==value` or `{path}!=value`" + ` | when the path finds a value; when one of the values found is the one given; when none is |
| ` + "`cel:`" + ` | [CEL](https://cel.dev) over ` + "`self`, the whole object, and `metadata`, `spec` and `status`" + ` | when the expression is true; a field that is not there yet makes it false |
| anything else | a Kubernetes label selector with paths into the object for keys: ` + "`status.phase == Succeeded`, `status.phase in (Succeeded, Failed)`, `status.phase != Running`, `!status.reason`" + `; a comma means and | as a selector does: ` + "`!=` and `notin`" + ` hold also where there is no value |

The task watches, so it ends as soon as the condition holds. It waits for a VirtualMachineInstance that does not exist yet. One
that is deleted ends the wait, unless its VirtualMachine makes another, as it does at a restart. With neither condition the task
ends at once. The success condition is looked at first.

| exit code | meaning |
|---|---|
| 0 | the success condition holds |
| 2 | the failure condition holds, or the VirtualMachineInstance was deleted |
| 3 | the timeout passed |
| 254 | the API could not be reached |
| 255 | a parameter is wrong |
`

func run(ctx context.Context, call *declare.Call) error {
	w, err := newWait(call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	if w.success == nil && w.failure == nil {
		return nil
	}
	bounded, cancel, err := call.Bounded(ctx, "timeout", errTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	return w.until(bounded)
}

// errTimeout is why the wait's context ends.
var errTimeout = errors.New("timed out waiting for the condition")
