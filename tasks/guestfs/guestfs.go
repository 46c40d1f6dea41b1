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
	"strings"
	"time"

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

// Params are the parameters of a task that runs tool; example is one of its commands.
func Params(tool, example string) []declare.Param {
	return []declare.Param{
		{Name: "pvc", Description: "PersistentVolumeClaim with the disk, as disk.img in its file system (volumeMode Filesystem). No VM may use it meanwhile.", Required: true, Kind: "pvc"},
		{Name: "virtCommands", Description: "Commands of " + tool + ", one a line, without leading dashes, such as `" + example + "`.", Kind: "script"},
		{Name: "verbose", Description: "Print what the tool and its appliance do.", Default: "false", Kind: "boolean"},
		{Name: "additionalVirtOptions", Description: "Further options of " + tool + ", such as `--smp 2 --memsize 2048`."},
	}
}

// Details is the part of a README that all such tasks share.
func Details(tool string) string {
	return fmt.Sprintf(`
The tool runs as user 107 in a small appliance, on KVM where the pod has it and under emulation otherwise. Files in the
optional workspaces data01 to data10 are at /data01 to /data10 for commands such as `+"`upload`"+`.

When a command fails, its output is in the log and the task ends with the exit code of %s. Other exit codes: 254 the
appliance is missing from the image, 253 the tool could not be started or was ended by a signal, 255 a parameter is wrong.`, tool)
}

// Run runs tool on the disk with the commands of the parameters.
func Run(ctx context.Context, call *declare.Call, tool string) error {
	args, commands, err := arguments(call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	if _, err := os.Stat(filepath.Join(os.Getenv(envAppliance), "kernel")); err != nil {
		return declare.Coded(codeAppliance, fmt.Errorf("finding libguestfs' appliance: %w; run the task in the slipway-guestfs image", err))
	}
	disk, err := diskOf(call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	script, err := writeCommands(commands)
	if err != nil {
		return declare.Coded(codeTool, err)
	}
	defer func() { _ = os.Remove(script) }()
	args = append([]string{"--format", "raw", "--add", disk, "--commands-from-file", script}, args...)
	call.Log.Info("running "+tool, "disk", disk)
	return runTool(ctx, call.Out, tool, args)
}

// arguments reads the parameters: the options of the tool, and its commands.
func arguments(call *declare.Call) (args []string, commands string, err error) {
	commands = call.String("virtCommands")
	if strings.TrimSpace(commands) == "" {
		return nil, "", errors.New("virt-commands option or VIRT_COMMANDS env variable is required")
	}
	verbose, err := call.Bool("verbose")
	if err != nil {
		return nil, "", err
	}
	if verbose {
		args = append(args, "--verbose", "-x")
	}
	more, err := split(call.String("additionalVirtOptions"))
	if err != nil {
		return nil, "", fmt.Errorf("additionalVirtOptions: %w", err)
	}
	return append(args, more...), commands, nil
}

// diskOf returns the disk to work on.
func diskOf(call *declare.Call) (string, error) {
	info, err := os.Lstat(call.Disk)
	if err != nil {
		return "", fmt.Errorf("pvc: its disk is not there: %w; import or create a disk.img in it first", err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("pvc: %s is no regular file", call.Disk)
	}
	return call.Disk, nil
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

func runTool(ctx context.Context, out io.Writer, tool string, args []string) error {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopGrace
	cmd.Env = os.Environ()
	if _, err := os.Stat("/dev/kvm"); err != nil {
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

// split makes words of a line as a shell does, with quotes and backslashes and nothing else.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	started, escaped := false, false
	end := func() {
		if started {
			words = append(words, word.String())
		}
		word.Reset()
		started = false
	}
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, started = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, started = r, true
		case strings.ContainsRune(" \t\n", r):
			end()
		default:
			word.WriteRune(r)
			started = true
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("%q has an open quote or a lone backslash", line)
	}
	end()
	return words, nil
}
