package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/catalog"
	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/controllers/hyperconverged"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/customization"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/profiler"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/verbosity"
	"github.com/slipway-vm/slipway/pipelines"
	"github.com/slipway-vm/slipway/tasks"
)

func newOperatorCommand() *cobra.Command {
	options := hyperconverged.Options{
		SlipwayImage:  os.Getenv(names.EnvSlipwayImage),
		LauncherImage: os.Getenv(names.EnvLauncherImage),
		GuestfsImage:  os.Getenv(names.EnvGuestfsImage),
		Version:       version,
		Bundles:       bundles(),
		Sizes:         catalog.Types(),
		BootSources:   catalog.BootSources(),
		Programs:      componentFlags(),
	}
	base := 0
	command := &cobra.Command{
		Use:   "operator",
		Short: "Brings up what one HyperConverged object asks for, and keeps it so",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := verbosity.New(base)
			logger := level.Logger()
			ctrl.SetLogger(logger)
			options.TLS = &tlspolicy.Policy{}
			options.Extend = func(mgr ctrl.Manager) error {
				return errors.Join(level.Follow(mgr, verbosity.Operator), options.TLS.FollowKubeVirt(mgr),
					profiler.Serve(mgr, featuregate.Profiler))
			}
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("finding the cluster: %w; set KUBECONFIG, or run in a pod", err)
			}
			return hyperconverged.Run(ctrl.LoggerInto(cmd.Context(), logger), config, options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Namespace, "namespace", os.Getenv(names.EnvPodNamespace), "namespace of the installation")
	flags.StringVar(&options.KubeletRoot, "kubelet-root", os.Getenv(names.EnvKubeletRoot), "the kubelet's root folder on the nodes; found out when empty")
	flags.StringVar(&options.WebhookURL, "webhook-url", "", "https://host:port where the API server reaches this program; through its Service when empty")
	flags.IntVar(&options.WebhookPort, "webhook-port", 9443, "port on which webhooks are served")
	flags.StringVar(&options.HealthAddress, "health-address", ":8080", "where /healthz and /readyz are served; 0 for nowhere")
	flags.StringVar(&options.MetricsAddress, "metrics-address", ":8443", "where /metrics is served, with TLS; 0 for nowhere")
	flags.IntVar(&base, "verbosity", 2, "0 logs little, 9 everything; while the KubeVirt object's logVerbosity says nothing")
	return command
}

// componentFlags gives the flags of the components, anew each time: who checks a value sets it.
func componentFlags() customization.Programs {
	return customization.Programs{
		"virt-api":        func() *pflag.FlagSet { return newAPICommand().Flags() },
		"virt-controller": func() *pflag.FlagSet { return newControllerCommand().Flags() },
		"virt-handler":    func() *pflag.FlagSet { return newHandlerCommand().Flags() },
		"cdi-uploadproxy": func() *pflag.FlagSet { return newUploadProxyCommand().Flags() },
	}
}

// bundles lists the YAML that HyperConverged can install into namespaces.
func bundles() []hyperconverged.Bundle {
	return []hyperconverged.Bundle{
		{Name: "tasks", Files: tasks.Manifests},
		{Name: "pipelines", Files: pipelines.Manifests},
	}
}
