package main

import (
	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/controllers/admission"
	"github.com/slipway-vm/slipway/internal/names"
)

// apiPort is where the webhooks are served.
const apiPort = 8443

func newAPICommand() *cobra.Command {
	var options admission.Options
	verbosity := 0
	cmd := &cobra.Command{
		Use:     "api",
		Short:   "Serves the webhooks that complete and check virtual machines and disks",
		Example: "  slipway api --namespace kubevirt-hyperconverged",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clusterConfig(verbosity)
			if err != nil {
				return err
			}
			return admission.Run(cmd.Context(), config, options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Namespace, "namespace", names.InstallNamespace, "namespace of the installation")
	flags.IntVar(&options.Port, "port", apiPort, "where the webhooks are served")
	flags.StringVar(&options.HealthAddress, "health-address", ":8080", "where /healthz, /readyz and /metrics are served; 0 for nowhere")
	flags.StringSliceVar(&options.Hosts, "host", nil, "further name by which the webhooks are reached, when they do not run behind their Service")
	flags.IntVar(&verbosity, "verbosity", 1, "0 logs little, 9 everything")
	return cmd
}
