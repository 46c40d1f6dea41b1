// Package cleanupvm ends a VM, after a last command in it.
package cleanupvm

import (
	"context"
	"errors"
	"fmt"

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
task is safe in ` + "`finally`" + ` and on retries.

Exit codes: the command's own; 253 when something could not be done, 254 when the Secret is wrong, 255 when a parameter is.`,
		Image: declare.Slipway,
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

func run(ctx context.Context, call *declare.Call) error {
	action, err := remote.ReadAction(call)
	stop, stopErr := call.Bool("stop")
	remove, removeErr := call.Bool("delete")
	if err := errors.Join(err, stopErr, removeErr); err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	if action.Text == "" && !stop && !remove {
		return declare.Coded(declare.CodeUsage, errors.New("no action was specified: at least one of the following options is required: command|script|stop|delete"))
	}
	timeout, err := call.Duration("timeout")
	if err != nil {
		return err
	}
	bounded := func(message string) (context.Context, context.CancelFunc) {
		if timeout == 0 {
			return context.WithCancel(ctx)
		}
		return context.WithTimeoutCause(ctx, timeout, errors.New(message))
	}
	var commandErr error
	if action.Text != "" {
		commandCtx, cancel := bounded("command timed out")
		commandErr = action.Execute(commandCtx, call)
		cancel()
		if commandErr != nil {
			call.Log.Error("the command failed; going on to clean up", "error", commandErr.Error())
		}
	}
	endCtx, cancel := bounded("timed out waiting for the condition")
	defer cancel()
	if err := end(endCtx, action.VM, stop, remove); err != nil {
		return declare.Coded(remote.CodeAction, errors.Join(err, commandErr))
	}
	return commandErr
}

// end deletes or stops the VM.
func end(ctx context.Context, vm *vmlife.VM, stop, remove bool) error {
	var err error
	switch {
	case remove:
		err = vm.Delete(ctx)
	case stop:
		err = vm.Stop(ctx)
	}
	if err != nil && ctx.Err() != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}
