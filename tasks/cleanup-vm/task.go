// Package cleanupvm ends a VM, after a last command in it.
package cleanupvm

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/remote"
	"github.com/slipway-vm/slipway/tasks/vmlife"
)

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "cleanup-vm",
		Title:   "Clean up a VM",
		Summary: "Runs an optional last command in a VirtualMachine, then stops or deletes it.",
		Details: `
Stopping and deleting happen also when the command fails or takes longer than the timeout; the task fails
with the command's exit code afterwards. Deleting a VirtualMachine that is gone already is no error, so the
task is safe in ` + "`finally`" + `. A retry does not run the command again when an earlier try came to its end.

The command and its results are those of [execute-in-vm](../execute-in-vm/README.md).

Exit codes: the command's own; 253 when something could not be done or took too long, 254 when the Secret is wrong, 255 when a
parameter is.`,
		Image:      declare.Slipway,
		ClientCode: remote.CodeInit,
		Params: append(remote.Params(),
			declare.Param{Name: "stop", Description: "Stop the VirtualMachine.", Default: "true", Kind: "boolean"},
			declare.Param{Name: "delete", Description: "Delete the VirtualMachine.", Default: "false", Kind: "boolean"},
			declare.Param{Name: "timeout", Description: "The longest time for the command, and again for stopping and deleting.", Default: "30m", Kind: "duration"}),
		Results: remote.Results(),
		Secret:  &declare.SecretMount{Param: "secretName", Path: remote.SecretPath},
		Rules:   vmlife.Rules(true),
		Examples: []declare.Example{
			{Title: "Delete a VM", Params: map[string]any{"vmName": "example-vm", "delete": "true"}},
		},
		Run: run,
	}
}

// options are the parameters, checked.
type options struct {
	action       *remote.Action
	stop, remove bool
	timeout      time.Duration
}

func readOptions(call *declare.Call) (o options, err error) {
	var errs [4]error
	o.action, errs[0] = remote.ReadAction(call)
	o.stop, errs[1] = call.Bool("stop")
	o.remove, errs[2] = call.Bool("delete")
	o.timeout, errs[3] = call.Duration("timeout")
	if err := errors.Join(errs[:]...); err != nil {
		return o, err
	}
	if o.action.Text == "" && !o.stop && !o.remove {
		return o, errors.New(remote.NoAction)
	}
	return o, nil
}

func run(ctx context.Context, call *declare.Call) error {
	o, err := readOptions(call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	var commandErr error
	if o.action.Text != "" {
		commandErr = command(ctx, call, o)
	}
	if commandErr != nil {
		call.Log.Error("the command failed; going on to clean up", "error", commandErr.Error())
	}
	if err := o.end(ctx); err != nil {
		return declare.Coded(remote.CodeAction, errors.Join(commandErr, err))
	}
	return commandErr
}

// command runs the last command, unless an earlier try of this TaskRun ran it.
func command(ctx context.Context, call *declare.Call, o options) error {
	ctx, cancel := o.bounded(ctx, "command timed out")
	defer cancel()
	err := o.action.ExecuteOnce(ctx, call)
	if o.remove && call.Retry && apierrors.IsNotFound(err) {
		call.Log.Info("an earlier try deleted the VirtualMachine")
		return nil
	}
	return err
}

// bounded limits a context by the timeout, if there is one.
func (o options) bounded(ctx context.Context, message string) (context.Context, context.CancelFunc) {
	if o.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, o.timeout, errors.New(message))
}

// end deletes or stops the VM.
func (o options) end(ctx context.Context) error {
	ctx, cancel := o.bounded(ctx, "timed out waiting for the condition")
	defer cancel()
	switch {
	case o.remove:
		return o.action.VM.Delete(ctx)
	case o.stop:
		return o.action.VM.Stop(ctx)
	}
	return nil
}
