// Package waitforvmistatus waits until a VirtualMachineInstance is as asked.
package waitforvmistatus

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Exit codes that clients know.
const (
	codeFailureCondition = 2
	codeTimeout          = 3
)

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "wait-for-vmi-status",
		Title:   "Wait for a VM's status",
		Summary: "Waits until a VirtualMachineInstance fulfils a condition, and fails when it fulfils another.",
		Details: details,
		Image:   declare.Slipway,
		Params: []declare.Param{
			{Name: "vmiName", Description: "Name of the VirtualMachineInstance to wait for.", Required: true, Kind: "name"},
			{Name: "vmiNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "namespace"},
			{Name: "successCondition", Description: "Condition that ends the task with success, such as `status.phase == Running`."},
			{Name: "failureCondition", Description: "Condition that ends the task with failure, such as `status.phase in (Failed, Unknown)`."},
			{Name: "timeout", Description: "The longest wait; at its end the task fails and says what it saw last.", Default: "2h", Kind: "duration"},
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachineinstances"}, Verbs: []string{"get", "list", "watch"}},
		},
		Examples: []declare.Example{{
			Title: "Wait until a VM runs",
			Params: map[string]any{
				"vmiName":          "example-vm",
				"successCondition": "status.phase == Running",
				"failureCondition": "status.phase in (Failed, Unknown)",
			},
		}},
		Run: run,
	}
}

const details = `
A condition has the grammar of a Kubernetes label selector, with paths into the object for keys:
` + "`status.phase == Succeeded`, `status.phase in (Succeeded, Failed)`, `status.phase != Running`, `!status.reason`" + `;
a comma means and. The task watches, so it ends as soon as the condition holds. It waits for a
VirtualMachineInstance that does not exist yet, and fails when the one it saw is deleted.
With neither condition it ends at once. The success condition is looked at first.

| exit code | meaning |
|---|---|
| 0 | the success condition holds |
| 2 | the failure condition holds, or the VirtualMachineInstance was deleted |
| 3 | the timeout passed |
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
	timeout, err := call.Duration("timeout")
	if err != nil {
		return err
	}
	bounded := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	call.Log.Info("waiting for VirtualMachineInstance", "name", w.key.String(),
		"successCondition", call.String("successCondition"), "failureCondition", call.String("failureCondition"))
	err = await.Object(bounded, call.Client, &virtv1.VirtualMachineInstanceList{}, w.key, w.check)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return declare.Coded(codeTimeout, fmt.Errorf("timed out waiting for the condition after %s: VirtualMachineInstance %s was last seen %s", timeout, w.key, w.last))
	}
	return err
}

// wait is one wait for one VirtualMachineInstance.
type wait struct {
	call             *declare.Call
	key              client.ObjectKey
	success, failure *condition
	seen             bool
	// last says what the object was like when it was last seen.
	last string
}

func newWait(call *declare.Call) (*wait, error) {
	name := call.String("vmiName")
	if name == "" {
		return nil, errors.New("vmi-name should not be empty")
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return nil, fmt.Errorf("invalid vmi-name value: %s", problems[0])
	}
	w := &wait{call: call, key: client.ObjectKey{Namespace: call.NamespaceOr("vmiNamespace"), Name: name}, last: "nowhere: it does not exist"}
	var err error
	if w.success, err = parse(call.String("successCondition")); err != nil {
		return nil, fmt.Errorf("success-condition: %w", err)
	}
	if w.failure, err = parse(call.String("failureCondition")); err != nil {
		return nil, fmt.Errorf("failure-condition: %w", err)
	}
	return w, nil
}

func (w *wait) check(vmi *virtv1.VirtualMachineInstance, exists bool) (bool, error) {
	if !exists {
		if w.seen {
			return false, declare.Coded(codeFailureCondition, fmt.Errorf("VirtualMachineInstance %s was deleted; it was last seen %s", w.key, w.last))
		}
		return false, nil
	}
	w.seen = true
	last := describe(vmi)
	if last != w.last {
		w.call.Log.Info("VirtualMachineInstance is "+last, "name", w.key.String())
		w.last = last
	}
	if met, err := w.success.holds(vmi); met || err != nil {
		return met, err
	}
	met, err := w.failure.holds(vmi)
	if err != nil {
		return false, err
	}
	if met {
		return false, declare.Coded(codeFailureCondition, fmt.Errorf("failure condition %q was met by VirtualMachineInstance %s, which is %s", w.call.String("failureCondition"), w.key, last))
	}
	return false, nil
}

// describe says in a few words what a VMI is like.
func describe(vmi *virtv1.VirtualMachineInstance) string {
	text := "in phase " + string(vmi.Status.Phase)
	if vmi.Status.Phase == virtv1.VmPhaseUnset {
		text = "without a phase"
	}
	for _, c := range vmi.Status.Conditions {
		if c.Status == "False" && c.Message != "" {
			text += fmt.Sprintf(", %s=%s (%s: %s)", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return text
}
