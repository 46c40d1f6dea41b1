package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/controllers"
	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/profiler"
	"github.com/slipway-vm/slipway/internal/ratelimit"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/verbosity"
)

func newControllerCommand() *cobra.Command {
	options := controllers.Options{Version: version, Identity: podIdentity()}
	base := 0
	cmd := &cobra.Command{
		Use:     "controller",
		Short:   "Runs the controllers: virtual machines, their disks and their launcher pods",
		Example: "  slipway controller --launcher-image ghcr.io/slipway-vm/slipway-launcher:v1 --importer-image ghcr.io/slipway-vm/slipway:v1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := verbosity.New(base)
			data := level.Part()
			config, err := clusterConfig(level)
			if err != nil {
				return err
			}
			requests := ratelimit.New(controllers.RequestRate)
			options.TLS, options.DataLog, options.Limiter = &tlspolicy.Policy{}, new(data.Logger()), requests
			options.Extend = func(mgr ctrl.Manager) error {
				return errors.Join(level.Follow(mgr, verbosity.Controller), data.FollowCDI(mgr), options.TLS.FollowKubeVirt(mgr),
					requests.Follow(mgr, ratelimit.Controller), profiler.Serve(mgr, featuregate.Profiler))
			}
			return controllers.Run(cmd.Context(), config, options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.LauncherImage, "launcher-image", os.Getenv(names.EnvLauncherImage), "image of launcher pods")
	flags.StringVar(&options.ImporterImage, "importer-image", os.Getenv(names.EnvSlipwayImage), "image of importer and provisioning pods")
	flags.StringVar(&options.GuestfsImage, "guestfs-image", os.Getenv(names.EnvGuestfsImage), "image with the guestfs tools")
	flags.StringVar(&options.Namespace, "namespace", names.InstallNamespace, "namespace of the installation")
	flags.StringVar(&options.ExportCertificate, "export-certificate", "", "file with the certificates that external links of exports tell of; it need not exist")
	flags.StringVar(&options.HealthAddress, "health-address", ":8080", "where /healthz and /readyz are served; 0 for nowhere")
	flags.StringVar(&options.MetricsAddress, "metrics-address", ":8443", "where /metrics is served, with TLS; 0 for nowhere")
	flags.IntVar(&base, "verbosity", 1, "0 logs little, 9 everything; while logVerbosity of the KubeVirt object, or of the CDI object for what is CDI's work, says nothing")
	return cmd
}

// clusterConfig sets up logging and finds the cluster.
func clusterConfig(level *verbosity.Level) (*rest.Config, error) {
	logger := level.Logger()
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w; set KUBECONFIG, or run in a pod", err)
	}
	return config, nil
}

// podIdentity is what this process holds leases by: its pod, or else its host.
func podIdentity() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	host, err := os.Hostname()
	if err != nil {
		return "slipway"
	}
	return host
}
