package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/pipelines/golden-image-refresh/start"
)

func newStartRunCommand() *cobra.Command {
	order := start.Order{Namespace: os.Getenv("NAMESPACE"), Job: os.Getenv("JOB_NAME"), JobUID: types.UID(os.Getenv("JOB_UID"))}
	cmd := &cobra.Command{
		Use:     "start-run",
		Short:   "Starts the PipelineRun of a Job and waits for its end; a CronJob runs it",
		Example: "  slipway start-run --file /run-to-start/run.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("finding the Kubernetes API: %w", err)
			}
			c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
			if err != nil {
				return fmt.Errorf("connecting to the Kubernetes API: %w", err)
			}
			return order.Do(cmd.Context(), c, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
		},
	}
	cmd.Flags().StringVar(&order.File, "file", "", "file with the PipelineRun to start")
	cmd.Flags().IntVar(&order.Keep, "keep", 0, "how many volumes of the golden image that the runs of this file made to keep, the newest ones; 0 for all")
	return cmd
}
