package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/vmlife"
)

// Exit codes that the field's tasks end with when the command itself did not say one.
const (
	CodeAction = 253
	CodeInit   = 254
)

// maxOutput is how much of the end of the command's output becomes a result, in bytes: all
// results of a TaskRun share 4096.
const maxOutput = 2048

// Params are the parameters of a task that runs something in a VM.
func Params() []declare.Param {
	return []declare.Param{
		{Name: "vmName", Description: "Name of the VirtualMachine.", Required: true, Kind: "name"},
		{Name: "vmNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "namespace"},
		{Name: "secretName", Description: "Secret with the connection's details: type, user, ssh-privatekey, and host-public-key or disable-strict-host-key-checking.", Default: "__empty__", Kind: "execute-in-vm-secret"},
		{Name: "command", Description: "Command to run; each item reaches the guest as one word. Either this or script.", Array: true},
		{Name: "args", Description: "Arguments of the command.", Array: true},
		{Name: "script", Description: "Script to run with the user's login shell. Either this or command.", Kind: "script"},
	}
}

// Results are the results of such a task.
func Results() []declare.Result {
	return []declare.Result{
		{Name: "exitCode", Description: "The command's exit code."},
		{Name: "stdout", Description: "The end of what the command printed, at most 2048 bytes."},
	}
}

// Action is what a task shall do with a VM, read from its parameters.
type Action struct {
	VM *vmlife.VM
	// Text is the line or script to run; "" for none.
	Text string
}

// ReadAction reads and checks the parameters.
func ReadAction(call *declare.Call) (*Action, error) {
	name := call.String("vmName")
	if name == "" {
		return nil, errors.New("missing value for vm-name option")
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return nil, fmt.Errorf("vm-name is not a valid name: %s", problems[0])
	}
	command, script := call.Array("command"), call.String("script")
	if len(command) > 0 && script != "" {
		return nil, errors.New("only one of command|script options is allowed")
	}
	if len(command) == 0 && len(call.Array("args")) > 0 {
		return nil, errors.New("args is given without command")
	}
	text := script
	if len(command) > 0 {
		text = Quote(append(command, call.Array("args")...))
	}
	key := client.ObjectKey{Namespace: call.NamespaceOr("vmNamespace"), Name: name}
	return &Action{VM: &vmlife.VM{Client: call.Client, Key: key, Log: call.Log}, Text: text}, nil
}

// Execute starts the VM when it does not run, runs the text in it and writes the results. An
// exit code of the command other than 0 is an error with that code.
func (a *Action) Execute(ctx context.Context, call *declare.Call) error {
	access, err := ReadSecret(SecretPath)
	if err != nil {
		return declare.Coded(CodeInit, err)
	}
	vmi, err := a.VM.Start(ctx)
	if err != nil {
		return declare.Coded(CodeAction, err)
	}
	tail := &tailWriter{limit: maxOutput}
	call.Log.Info("executing in VirtualMachine", "name", a.VM.Key.String(), "address", vmlife.Address(vmi))
	code, err := access.Run(ctx, call.Log, vmlife.Address(vmi), Command{Text: a.Text, Out: io.MultiWriter(call.Out, tail), Err: call.Out})
	if err != nil {
		return declare.Coded(CodeAction, err)
	}
	if err := errors.Join(call.Result("exitCode", strconv.Itoa(code)), call.Result("stdout", strings.TrimSpace(tail.String()))); err != nil {
		return declare.Coded(CodeAction, err)
	}
	if code != 0 {
		return declare.Coded(code, fmt.Errorf("the command in VirtualMachine %s ended with exit code %d", a.VM.Key, code))
	}
	return nil
}

// tailWriter keeps the last limit bytes written to it.
type tailWriter struct {
	bytes.Buffer
	limit int
}

func (w *tailWriter) Write(p []byte) (int, error) {
	n := len(p)
	if n > w.limit {
		p = p[n-w.limit:]
	}
	if over := w.Len() + len(p) - w.limit; over > 0 {
		w.Next(over)
	}
	_, _ = w.Buffer.Write(p) // a buffer takes all
	return n, nil
}
