package main

import (
	"errors"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/controllers/admission"
	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/controllers/subresource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/profiler"
	"github.com/slipway-vm/slipway/internal/ratelimit"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/verbosity"
)

// apiPort is where the webhooks and the subresources are served.
const apiPort = 8443

func newAPICommand() *cobra.Command {
	var options admission.Options
	subresources := subresource.Options{Version: version, Certificates: admission.CertificatesSecret}
	base := 0
	cmd := &cobra.Command{
		Use:     "api",
		Short:   "Serves the webhooks that complete and check virtual machines and disks, and the machines' subresources",
		Example: "  slipway api --namespace kubevirt-hyperconverged",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := verbosity.New(base)
			config, err := clusterConfig(level)
			if err != nil {
				return err
			}
			requests, hooks := ratelimit.New(ratelimit.Rate{}), ratelimit.New(ratelimit.Rate{})
			config.RateLimiter, options.WebhookLimiter = requests, hooks
			subresources.Namespace, options.TLS = options.Namespace, &tlspolicy.Policy{}
			options.Extend = func(mgr ctrl.Manager) error {
				return errors.Join(subresource.Setup(mgr, subresources), level.Follow(mgr, verbosity.API), options.TLS.FollowKubeVirt(mgr),
					requests.Follow(mgr, ratelimit.API), hooks.Follow(mgr, ratelimit.Webhooks), profiler.Serve(mgr, featuregate.Profiler))
			}
			return admission.Run(cmd.Context(), config, options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Namespace, "namespace", names.InstallNamespace, "namespace of the installation")
	flags.IntVar(&options.Port, "port", apiPort, "where the webhooks and the subresources are served")
	flags.StringVar(&options.HealthAddress, "health-address", ":8080", "where /healthz and /readyz are served; 0 for nowhere")
	flags.StringVar(&options.MetricsAddress, "metrics-address", ":8444", "where /metrics is served, with TLS; 0 for nowhere")
	flags.StringSliceVar(&options.Hosts, "host", nil, "further name by which the webhooks are reached, when they do not run behind their Service")
	flags.StringVar(&subresources.GuestfsImage, "guestfs-image", "", "image with the guestfs tools, which users are told")
	flags.StringVar(&subresources.TokenFile, "handler-token", subresource.TokenFile, "file with the token that virt-handler knows virt-api by")
	flags.IntVar(&subresources.HandlerPort, "handler-port", subresource.HandlerPort, "where virt-handler serves on every node")
	flags.IntVar(&base, "verbosity", 1, "0 logs little, 9 everything; while the KubeVirt object's logVerbosity says nothing")
	return cmd
}
