package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/vmlife"
)

// Exit codes that the field's tasks end with when the command itself did not say one.
const (
	CodeAction = 253
	CodeInit   = 254
)

// maxOutput is how much of the end of the command's output becomes a result, in bytes of JSON:
// all results of a TaskRun share 4096 with what Tekton says beside them.
const maxOutput = 2048

// noSecret is the value of secretName for a task that logs in nowhere.
const noSecret = "__empty__"

// annotationCommand says on a VM which TaskRun ran its last command, and with which exit code.
const annotationCommand = names.Domain + "last-command"

// Params are the parameters of a task that runs something in a VM.
func Params() []declare.Param {
	return []declare.Param{
		{Name: "vmName", Description: "Name of the VirtualMachine.", Required: true, Object: declare.VirtualMachine},
		{Name: "vmNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "namespace"},
		{Name: "secretName", Description: "Secret with the connection's details: type, user, ssh-privatekey, and host-public-key or disable-strict-host-key-checking.", Default: noSecret, Kind: "execute-in-vm-secret", Object: declare.Secret},
		{Name: "command", Description: "Command to run; each item reaches the guest as one word. Either this or script.", Array: true, Kind: "command"},
		{Name: "args", Description: "Arguments of the command.", Array: true, Kind: "args"},
		{Name: "script", Description: "Script to run with the user's login shell. Either this or command.", Kind: "script"},
	}
}

// Results are the results of such a task.
func Results() []declare.Result {
	return []declare.Result{
		{Name: "exitCode", Description: "The command's exit code."},
		{Name: "stdout", Description: "The end of what the command printed, at most 2048 bytes as JSON; the log has all of it."},
	}
}

// Action is what a task shall do with a VM, read from its parameters.
type Action struct {
	VM *vmlife.VM
	// Text is the line or script to run; "" for none.
	Text string
}

// NoAction is the error of a call that asks for nothing.
const NoAction = "no action was specified: at least one of the following options is required: command|script|stop|delete"

// ReadAction reads and checks the parameters.
func ReadAction(call *declare.Call) (*Action, error) {
	name := call.Name("vmName")
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
	if script != "" && len(call.Array("args")) > 0 {
		return nil, errors.New("only one of command-args|script options is allowed: args belong to command, so put them into the script")
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
	tail := &tailWriter{limit: maxOutput}
	code, err := a.run(ctx, call, tail)
	exit := ""
	if err == nil {
		exit = strconv.Itoa(code)
	}
	resultErr := errors.Join(call.Result("exitCode", exit), call.Result("stdout", fit(tail.String(), maxOutput)))
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil || resultErr != nil {
		return declare.Coded(CodeAction, errors.Join(err, resultErr))
	}
	return a.failure(code)
}

// run returns the exit code of the text; an error means that there is none.
func (a *Action) run(ctx context.Context, call *declare.Call, tail io.Writer) (int, error) {
	if name := call.String("secretName"); name == "" || name == noSecret {
		return 0, declare.Coded(CodeInit, errors.New("connection secret should not be empty: name one in secretName"))
	}
	access, err := ReadSecret(call.Secret)
	if err != nil {
		return 0, declare.Coded(CodeInit, err)
	}
	vmi, err := a.VM.Start(ctx)
	if err != nil {
		return 0, err
	}
	address := vmlife.Address(vmi)
	call.Log.Info("executing in VirtualMachine", "name", a.VM.Key.String(), "address", address)
	return access.Run(ctx, call.Log, address, Command{Text: a.Text, Out: io.MultiWriter(call.Out, tail), Err: call.Out})
}

// failure is nil for exit code 0.
func (a *Action) failure(code int) error {
	if code == 0 {
		return nil
	}
	return declare.Coded(code, &commandError{vm: a.VM.Key.String(), code: code})
}

// commandError is the end of a command with an exit code other than 0.
type commandError struct {
	vm   string
	code int
}

// Error says which code it was.
func (e *commandError) Error() string {
	return fmt.Sprintf("the command in VirtualMachine %s ended with exit code %d", e.vm, e.code)
}

// ExecuteOnce does what Execute does, but not again in a retry of the same TaskRun whose earlier
// try came to the end of the command: then it gives its exit code again.
func (a *Action) ExecuteOnce(ctx context.Context, call *declare.Call) error {
	vm, err := a.VM.Get(ctx)
	if err != nil {
		return declare.Coded(CodeAction, err)
	}
	run, code, _ := strings.Cut(vm.Annotations[annotationCommand], "/")
	if number, err := strconv.Atoi(code); err == nil && call.TaskRunUID != "" && run == string(call.TaskRunUID) {
		call.Log.Info("an earlier try ran the command", "exitCode", number)
		if err := errors.Join(call.Result("exitCode", code), call.Result("stdout", "")); err != nil {
			return declare.Coded(CodeAction, err)
		}
		return a.failure(number)
	}
	err = a.Execute(ctx, call)
	var ended *commandError
	switch {
	case call.TaskRunUID == "":
		return err
	case err == nil:
		code = "0"
	case errors.As(err, &ended):
		code = strconv.Itoa(ended.code)
	default:
		return err
	}
	if markErr := a.VM.Mark(ctx, vm, annotationCommand, string(call.TaskRunUID)+"/"+code); markErr != nil {
		call.Log.Warn("a retry would run the command again", "reason", markErr.Error())
	}
	return err
}

// fit returns the end of text that takes at most limit bytes as JSON.
func fit(text string, limit int) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	for {
		data, err := json.Marshal(text)
		over := len(data) - len(`""`) - limit
		if err != nil || over <= 0 {
			return text
		}
		cut := max(1, over/len(`\u0000`)) // what is cut may be one byte or six of JSON
		for cut < len(text) && !utf8.RuneStart(text[cut]) {
			cut++
		}
		text = text[cut:]
	}
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
