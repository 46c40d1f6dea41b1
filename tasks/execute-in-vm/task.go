// Package executeinvm runs a command or script in a VM over SSH.
package executeinvm

import (
	"context"
	"errors"

	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/remote"
	"github.com/slipway-vm/slipway/tasks/vmlife"
)

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "execute-in-vm",
		Title:   "Execute in a VM",
		Summary: "Runs a command or a script in a VirtualMachine over SSH; its exit code is the task's.",
		Details: `
The VirtualMachine is started when it does not run. The task waits until the guest's SSH server
answers, for at most the timeout. Words of command and args reach the guest as they are.

Exit codes: the command's own; 253 when it could not be run, 254 when the Secret is wrong, 255 when a parameter is.`,
		Image: declare.Slipway,
		Params: append(remote.Params(),
			declare.Param{Name: "timeout", Description: "The longest time for start, connection and command together.", Default: "1h", Kind: "duration"}),
		Results: remote.Results(),
		Secret:  &declare.SecretMount{Param: "secretName", Path: remote.SecretPath},
		Rules:   vmlife.Rules(false),
		Examples: []declare.Example{
			{Title: "Run a script", Params: map[string]any{"vmName": "example-vm", "secretName": "example-vm-ssh", "script": "set -e\nuptime\n"}},
			{Title: "Run a command", Params: map[string]any{"vmName": "example-vm", "secretName": "example-vm-ssh", "command": []string{"systemctl"}, "args": []string{"is-active", "ssh"}}},
		},
		Run: run,
	}
}

func run(ctx context.Context, call *declare.Call) error {
	action, err := remote.ReadAction(call)
	if err == nil && action.Text == "" {
		err = errors.New("no action was specified: at least one of the following options is required: command|script")
	}
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	timeout, err := call.Duration("timeout")
	if err != nil {
		return err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errors.New("command timed out"))
		defer cancel()
	}
	return action.Execute(ctx, call)
}
