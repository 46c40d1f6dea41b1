package main

import (
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/controllers/admission"
	"github.com/slipway-vm/slipway/controllers/subresource"
	"github.com/slipway-vm/slipway/internal/names"
)

// apiPort is where the webhooks and the subresources are served.
const apiPort = 8443

func newAPICommand() *cobra.Command {
	var options admission.Options
	subresources := subresource.Options{Version: version}
	verbosity := 0
	cmd := &cobra.Command{
		Use:     "api",
		Short:   "Serves the webhooks that complete and check virtual machines and disks, and the machines' subresources",
		Example: "  slipway api --namespace kubevirt-hyperconverged",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clusterConfig(verbosity)
			if err != nil {
				return err
			}
			subresources.Namespace = options.Namespace
			options.Extend = func(mgr ctrl.Manager) error { return subresource.Setup(mgr, subresources) }
			return admission.Run(cmd.Context(), config, options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Namespace, "namespace", names.InstallNamespace, "namespace of the installation")
	flags.IntVar(&options.Port, "port", apiPort, "where the webhooks and the subresources are served")
	flags.StringVar(&options.HealthAddress, "health-address", ":8080", "where /healthz and /readyz are served; 0 for nowhere")
	flags.StringVar(&options.MetricsAddress, "metrics-address", ":8444", "where /metrics is served, with TLS; 0 for nowhere")
	flags.StringSliceVar(&options.Hosts, "host", nil, "further name by which the webhooks are reached, when they do not run behind their Service")
	flags.StringVar(&subresources.TokenFile, "handler-token", subresource.TokenFile, "file with the token that virt-handler knows virt-api by")
	flags.IntVar(&subresources.HandlerPort, "handler-port", subresource.HandlerPort, "where virt-handler serves on every node")
	flags.IntVar(&verbosity, "verbosity", 1, "0 logs little, 9 everything")
	return cmd
}
