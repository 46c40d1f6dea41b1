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
The VirtualMachine is started when it does not run: one that is Halted is made to run Always. One that runs Once or Manual, or RerunOnFailure and has
succeeded, and that has ended, is its user's to start, and the task says so at once. The task waits for its start, for its address on the pod network and
for the guest's SSH server, and says at the timeout which of them was missing.

Words of command and args reach the guest as they are: nothing splits or expands them. Variables, pipes and lists of
commands belong into script, which the login shell of the user runs. The quoting is that of a POSIX shell; for a guest with
another shell use script.

The result stdout is the end of what the command printed. Tekton allows 4096 bytes for all results of a TaskRun, so it is at
most 2048 bytes; the log has all of it. The result exitCode is empty when the command did not come to its end.

A retry runs the command again: write it so that it may run twice.

Exit codes: the command's own; 253 when it could not be run or took too long, 254 when the Secret is wrong, 255 when a parameter is.`,
		Image:      declare.Slipway,
		ClientCode: remote.CodeInit,
		Params: append(remote.Params(),
			declare.Param{Name: "timeout", Description: "The longest time for start, connection and command together; by default until shortly before Tekton's own timeout of the TaskRun.", Kind: "duration"}),
		Results: remote.Results(),
		Secret:  &declare.SecretMount{Param: "secretName", Path: remote.SecretPath},
		Rules:   append(vmlife.Rules(false), declare.DeadlineRule()),
		Examples: []declare.Example{
			{Title: "Run a script", Params: map[string]any{"vmName": "example-vm", "secretName": "example-vm-ssh", "script": "sudo apt-get update\n"}},
			{Title: "Run a command", Params: map[string]any{"vmName": "example-vm", "secretName": "example-vm-ssh", "command": []string{"systemctl"}, "args": []string{"is-active", "ssh"}}},
		},
		Run: run,
	}
}

func run(ctx context.Context, call *declare.Call) error {
	action, err := remote.ReadAction(call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	if action.Text == "" {
		return declare.Coded(declare.CodeUsage, errors.New(remote.NoAction))
	}
	bounded, cancel, err := call.Bounded(ctx, "timeout", errors.New("command timed out"))
	if err != nil {
		return err
	}
	defer cancel()
	return action.Execute(bounded, call)
}
