package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/resident"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tasks"
	"github.com/slipway-vm/slipway/tasks/declare"
)

func newTaskCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "task",
		Short: "Runs a provisioning task; its Tekton Task sets the parameters in the environment",
	}
	for _, task := range tasks.All() {
		command.AddCommand(&cobra.Command{
			Use:                task.Name,
			Short:              task.Summary,
			DisableFlagParsing: true, // the items of array parameters may look like flags
			RunE: func(cmd *cobra.Command, args []string) error {
				return runTask(cmd.Context(), task, args)
			},
		})
	}
	return command
}

// runTask runs one task; its error is a record of the log, as clients expect.
func runTask(ctx context.Context, task *declare.Task, args []string) error {
	log := declare.NewLog(os.Stderr)
	err := task.Execute(ctx, declare.Environment{
		Args: args, LookupEnv: os.LookupEnv, Out: os.Stdout, Log: log,
		Connect: func() (client.WithWatch, error) { return connect(log) },
	})
	if err != nil {
		log.Error(err.Error())
		return &reported{err}
	}
	return nil
}

// connect makes the task's client. With it all is prepared, and what only the start needed is dropped.
func connect(log *slog.Logger) (client.WithWatch, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err := resident.Drop(); err != nil {
		log.Warn("the task holds more memory than it needs", "cause", err.Error())
	}
	return c, err
}
