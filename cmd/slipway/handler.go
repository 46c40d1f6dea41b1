package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/profiler"
	"github.com/slipway-vm/slipway/internal/ratelimit"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/verbosity"
	"github.com/slipway-vm/slipway/runtime/handler"
	"github.com/slipway-vm/slipway/runtime/handler/kvm"
	"github.com/slipway-vm/slipway/runtime/hostpath"
)

func newHandlerCommand() *cobra.Command {
	options := handler.Options{Version: version}
	storage := hostpath.Options{Version: version, Registerer: metrics.Registry}
	base := 0
	command := &cobra.Command{
		Use:   "handler",
		Short: "Runs the node agent: virtual machines, their networks and devices, and node storage",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := verbosity.New(base)
			logger := level.Logger()
			ctrl.SetLogger(logger)
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("finding the cluster: %w; set KUBECONFIG, or run in a pod", err)
			}
			requests := ratelimit.New(ratelimit.Rate{})
			config.RateLimiter = requests
			options.Config, storage.Config, storage.Log = config, config, logger
			storage.NodeName, storage.KubeletRoot, storage.Namespace = options.NodeName, options.KubeletRoot, options.Namespace
			options.TLS = &tlspolicy.Policy{}
			options.Extend = func(mgr ctrl.Manager) error {
				return errors.Join(level.Follow(mgr, verbosity.Handler(options.NodeName)), options.TLS.FollowKubeVirt(mgr),
					requests.Follow(mgr, ratelimit.Handler), profiler.Serve(mgr, featuregate.Profiler))
			}
			if options.ProveKVM, err = proofCommand(); err != nil {
				return err
			}
			group, ctx := errgroup.WithContext(ctrl.LoggerInto(cmd.Context(), logger))
			for _, run := range []func(context.Context) error{
				func(ctx context.Context) error { return handler.Run(ctx, options) },
				func(ctx context.Context) error { return hostpath.Run(ctx, storage) },
			} {
				group.Go(func() error { return run(ctx) })
			}
			return group.Wait()
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.NodeName, "node", os.Getenv(names.EnvNodeName), "name of this node")
	flags.StringVar(&options.KubeletRoot, "kubelet-root", "/var/lib/kubelet", "the kubelet's root folder, at the same path as on the node")
	flags.StringVar(&options.Description, "node-description", "", "folder in which virt-launcher has described the node's processor; empty for none")
	flags.StringVar(&options.Address, "health-address", ":8080", "where /healthz and /readyz are served; 0 for nowhere")
	flags.StringVar(&options.MetricsAddress, "metrics-address", ":8443", "where /metrics is served, with TLS; 0 for nowhere")
	flags.StringVar(&storage.HostRoot, "host-root", "/host", "where the node's root folder is mounted")
	flags.StringVar(&options.APIAddress, "api-address", ":8186", "where virt-api reaches this handler, for consoles, pauses and the like")
	flags.StringVar(&options.Namespace, "namespace", os.Getenv(names.EnvPodNamespace), "namespace of the installation, whose virt-api is served")
	flags.IntVar(&base, "verbosity", 1, "0 logs little, 9 everything; while the KubeVirt object's logVerbosity says nothing")
	command.AddCommand(newKVMProofCommand())
	return command
}

// newKVMProofCommand runs the guest that proves KVM, in a process that can be killed.
func newKVMProofCommand() *cobra.Command {
	return &cobra.Command{
		Use: "kvm-proof", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return kvm.Run() },
	}
}

// proofCommand is how this program runs its own kvm-proof.
func proofCommand() ([]string, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the own program: %w", err)
	}
	return []string{own, "handler", "kvm-proof"}, nil
}
