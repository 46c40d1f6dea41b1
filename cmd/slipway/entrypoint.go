package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// entrypointName is the program that the images of kubevirt-tekton-tasks start with; the
// environment variable COMMAND tells it which other one to run.
const (
	entrypointName = "entrypoint"
	envCommand     = "COMMAND"
)

// invokedAs returns the arguments after the program's name. The images have links to this program
// by the names of those of kubevirt-tekton-tasks: called so, it runs the task that they run.
func invokedAs(args []string) []string {
	name := path.Base(args[0])
	if _, known := programs()[name]; known || name == entrypointName {
		return append([]string{entrypointName, name}, args[1:]...)
	}
	return args[1:]
}

// newEntrypointCommand runs Tasks that were written for kubevirt-tekton-tasks: programs, flags and
// environment variables are theirs, the work is that of our task.
func newEntrypointCommand() *cobra.Command {
	return &cobra.Command{
		Use:                entrypointName + " PROGRAM [ARGUMENTS]",
		Short:              "Runs a program of kubevirt-tekton-tasks by its name, flags and environment, for Tasks of which only the image was replaced",
		Example:            "  VMI_NAME=web SUCCESS_CONDITION='status.phase == Running' slipway entrypoint wait-for-vmi-status",
		DisableFlagParsing: true, // they are the program's
		RunE: func(cmd *cobra.Command, args []string) error {
			log := declare.NewLog(os.Stderr)
			err := runProgram(cmd.Context(), args, log)
			if err != nil {
				log.Error(err.Error())
				return &reported{err}
			}
			return nil
		},
	}
}

// runProgram runs the program that args begin with.
func runProgram(ctx context.Context, args []string, log *slog.Logger) error {
	name, args, err := chosen(args, os.LookupEnv)
	if err != nil {
		return err
	}
	asked, err := read(name, args, os.LookupEnv)
	if err != nil {
		return err
	}
	connect := connector(asked, log)
	if err := asked.findRun(ctx, connect); err != nil {
		return err
	}
	return asked.task.Execute(ctx, declare.Environment{
		Args: asked.items(), LookupEnv: asked.lookup, Connect: connect, Out: os.Stdout, Log: log,
	})
}

// chosen is the program to run and its own arguments: the one that was called, or that COMMAND names.
func chosen(args []string, lookup func(string) (string, bool)) (name string, rest []string, err error) {
	if len(args) > 0 {
		name, rest = path.Base(args[0]), args[1:]
	}
	if name == entrypointName {
		command, _ := lookup(envCommand)
		words := strings.Fields(command) // as the shell of their entrypoint takes it
		if len(words) == 0 {
			return "", nil, &declare.Exit{Code: 1, Err: fmt.Errorf("command not defined: set the environment variable %s to one of %s", envCommand, programNames())}
		}
		name, rest = path.Base(words[0]), append(slices.Clone(words[1:]), rest...)
	}
	if _, known := programs()[name]; !known {
		return "", nil, &declare.Exit{Code: 1, Err: fmt.Errorf("no program %q of kubevirt-tekton-tasks; there are %s", name, programNames())}
	}
	return name, rest, nil
}

// connector makes the client of the task. It goes on with fewer rights than our Roles give:
// those that the Roles of kubevirt-tekton-tasks have.
func connector(asked *request, log *slog.Logger) func() (client.WithWatch, error) {
	return func() (client.WithWatch, error) {
		if asked.program.offline != "" {
			return nil, errors.New(asked.program.offline)
		}
		full, err := connect(log)
		if err != nil {
			return nil, err
		}
		return &frugal{WithWatch: full, log: log, task: asked.task.Name}, nil
	}
}
