// Package guestfs runs the tools of libguestfs on a claim's disk, for the tasks that do so.
package guestfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/taskdisk"
	"github.com/slipway-vm/slipway/tasks/cached"
	"github.com/slipway-vm/slipway/tasks/claim"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Exit codes that the field's tasks end with.
const (
	codeAppliance = 254
	codeTool      = 253
)

// envAppliance names the folder of libguestfs' prebuilt appliance; the guestfs image sets it.
const envAppliance = "LIBGUESTFS_PATH"

// stopGrace is how long a tool may take to end its appliance cleanly once the task is cancelled.
const stopGrace = 20 * time.Second

// Tool is a program of libguestfs, run by a task of its own.
type Tool struct {
	// Name is the program.
	Name string
	// OldCommands is what the parameter virtCommands was called in older releases of the field's task.
	OldCommands string
}

// Names of parameters.
const (
	paramClaim    = "pvc"
	paramCommands = "virtCommands"
	paramOptions  = "additionalVirtOptions"
)

// Params are the parameters of a task that runs the tool; example is one of its commands.
func (t Tool) Params(example string) []declare.Param {
	return append([]declare.Param{
		{Name: paramClaim, Description: "PersistentVolumeClaim with the disk: its device (volumeMode Block), or disk.img in its file system. No VM may use it meanwhile.", Required: true, Object: declare.Claim},
		{Name: paramCommands, Description: "Commands of " + t.Name + ", one a line, without leading dashes, such as `" + example + "`.", Kind: "script", Earlier: []string{t.OldCommands}},
		{Name: "verbose", Description: "Print what the tool and its appliance do.", Default: "false", Kind: "boolean"},
		{Name: paramOptions, Description: "Further options of " + t.Name + ", such as `--smp 2 --memsize 2048`. Words are split as a shell does, with quotes; nothing is expanded.", Earlier: []string{"additionalOptions"}},
	}, cached.Params()...)
}

// Results are the results of such a task.
func (t Tool) Results() []declare.Result {
	return append([]declare.Result{
		{Name: "exitCode", Description: "The exit code of " + t.Name + "."},
		{Name: "stdout", Description: "The end of what it printed, at most 1024 bytes, without passwords."},
	}, cached.Results()...)
}

// Rules are the API verbs that such a task uses.
func (t Tool) Rules() []rbacv1.PolicyRule { return append(cached.Rules(), cached.DiskRule()) }

// Details is the part of a README that all such tasks share.
func (t Tool) Details() string {
	return fmt.Sprintf(`
The tool runs as user 107 in a small appliance, on KVM where the pod has a /dev/kvm that works and under emulation otherwise.
Files in the optional workspaces data01 to data10 are at /data01 to /data10 for commands such as `+"`upload`"+`.

The claim may be a file system with a disk.img or a block device. Its disk must be open to user or group 107: where
Slipway is installed its webhook sees to both, elsewhere set podTemplate.securityContext.fsGroup: 107 in the run. When a VM
uses the claim the task fails at once; run it as its ServiceAccount, which may look for such VMs.

When a command fails, its output is in the log and the task ends with the exit code of %[1]s. Passwords that commands
or options give in clear are printed as ***; files keep them out of the TaskRun too (`+"`root-password file:/data01/password`"+`).
When an earlier run did the same to the same disk, its result is taken from the step cache: docs/step-cache.md has all of it.

The warning that the random seed could not be set has this cause: the tool looks for the file of a seed that the guest has, or
for the folder where older releases of its distribution keep one (Debian: /var/lib/urandom). A guest with systemd whose disk was never
booted has neither. It makes its seed at its first boot; one in a golden image would be the same in all its clones. Nothing is lost.

Other exit codes: 254 the appliance is missing from the image, 253 the tool could not be started or was ended by a signal,
255 a parameter is wrong or the disk cannot be used.`, t.Name)
}

// Run runs the tool on the disk with the commands of the parameters.
func (t Tool) Run(ctx context.Context, call *declare.Call) error {
	options, err := read(call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	if _, err := os.Stat(filepath.Join(os.Getenv(envAppliance), "kernel")); err != nil {
		return declare.Coded(codeAppliance, fmt.Errorf("finding libguestfs' appliance: %w; run the task in the slipway-guestfs image", err))
	}
	disk, err := t.disk(ctx, call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	script, err := writeCommands(options.commands)
	if err != nil {
		return declare.Coded(codeTool, err)
	}
	defer func() { _ = os.Remove(script) }()
	args := append([]string{"--format", "raw", "--add", disk, "--commands-from-file", script}, options.args...)
	step := cached.DiskStep{
		Tool: t.Name, Commands: options.commands, Options: call.String(paramOptions), Disk: disk, Claim: call.String(paramClaim), Block: disk == taskdisk.Device,
	}
	if err := errors.Join(call.Result("exitCode", "0"), call.Result("stdout", "")); err != nil { // where the disk is in the step cache
		return declare.Coded(codeTool, err)
	}
	return cached.Disk(ctx, call, step, func(ctx context.Context) error {
		call.Log.Info("running "+t.Name, "disk", disk)
		if options.verbose {
			call.Log.Debug("executing virt command with options: " + redact(strings.Join(args, " "), options.secrets()))
		}
		begun := time.Now()
		err := t.report(call, options, func(out io.Writer) error { return runTool(ctx, out, t.Name, args) })
		call.Log.Info(t.Name+" has ended", "took", time.Since(begun).Round(time.Millisecond).String())
		return err
	})
}

// disk returns the disk to work on, once nobody else does.
func (t Tool) disk(ctx context.Context, call *declare.Call) (string, error) {
	key := client.ObjectKey{Namespace: call.Namespace, Name: call.String(paramClaim)}
	if err := claim.Free(ctx, call.Client, call.Log, key); err != nil {
		return "", err
	}
	disk, err := claim.Find(call, paramClaim, true)
	if err != nil {
		return "", err
	}
	if err := claim.Unlocked(disk); err != nil {
		return "", fmt.Errorf("%s: claim %s: %w", paramClaim, key.Name, err)
	}
	return disk, nil
}

// report runs the tool and passes on what it prints, without secrets, as log and results.
func (t Tool) report(call *declare.Call, o options, run func(out io.Writer) error) error {
	end := &tail{limit: maxOutput}
	out := newRedactor(io.MultiWriter(call.Out, end), o.secrets())
	err := run(out)
	if flushErr := out.Flush(); err == nil && flushErr != nil {
		err = declare.Coded(codeTool, fmt.Errorf("printing the output of %s: %w", t.Name, flushErr))
	}
	code := 0
	if exit, ok := errors.AsType[*declare.Exit](err); ok {
		code = exit.Code
	}
	results := errors.Join(call.Result("exitCode", strconv.Itoa(code)), call.Result("stdout", end.text()))
	if err != nil {
		return errors.Join(err, results)
	}
	return declare.Coded(codeTool, results)
}

func writeCommands(commands string) (string, error) {
	file, err := os.CreateTemp("", "commands-")
	if err != nil {
		return "", fmt.Errorf("keeping the commands: %w", err)
	}
	_, writeErr := io.WriteString(file, strings.TrimRight(commands, "\n")+"\n")
	if err := errors.Join(writeErr, file.Close()); err != nil {
		return "", fmt.Errorf("keeping the commands: %w", err)
	}
	return file.Name(), nil
}

// runTool runs the tool; its exit code is that of the error.
func runTool(ctx context.Context, out io.Writer, tool string, args []string) error {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopGrace
	cmd.Env = os.Environ()
	if !kvmWorks(deviceKVM) {
		cmd.Env = append(cmd.Env, "LIBGUESTFS_BACKEND_SETTINGS=force_tcg")
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.Exited():
		return declare.Coded(exit.ExitCode(), fmt.Errorf("%s ended with exit code %d; its output above says why", tool, exit.ExitCode()))
	}
	return declare.Coded(codeTool, fmt.Errorf("running %s: %w", tool, err))
}
