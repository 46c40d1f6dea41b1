package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/importer/exportproxy"
	"github.com/slipway-vm/slipway/importer/exportserver"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/verbosity"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// newExportServerCommand gives out volumes; the VirtualMachineExport controller runs it in a pod.
func newExportServerCommand() *cobra.Command {
	var o exportserver.Options
	var spoken tlsFlags
	var deadline string
	cmd := &cobra.Command{
		Use:   "export-server",
		Short: "Gives out volumes to whoever has a token",
		Long: `Gives out volumes by HTTPS to whoever shows the token: disks raw, which can be read in ranges, and packed by gzip; volumes
with files one by one, and as a tar archive packed by gzip. It ends at the deadline.`,
		Example: `  slipway export-server --cert-dir ./certs --token-file ./token --disk root=/export-volumes/root --files dumps=/export-volumes/dumps`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.TLS, err = spoken.policy(); err != nil {
				return err
			}
			if deadline != "" {
				if o.Deadline, err = time.Parse(time.RFC3339, deadline); err != nil {
					return fmt.Errorf("reading --deadline: %w; write it as 2030-01-31T12:00:00Z", err)
				}
			}
			logger := verbosity.New(1).Logger()
			ctrl.SetLogger(logger)
			return exportserver.Run(ctrl.LoggerInto(cmd.Context(), logger), o)
		},
	}
	flags := cmd.Flags()
	spoken.add(flags)
	flags.StringToStringVar(&o.Disks, "disk", nil, "name of a disk, and its block device or the folder with its disk.img: "+nameAndPath)
	flags.StringToStringVar(&o.Files, "files", nil, "name of a volume with files, and its folder: "+nameAndPath)
	flags.StringVar(&o.Manifest, "manifest", "", "file with the definition of the VM that the volumes are of, as a List in JSON")
	flags.StringVar(&o.HeaderSecret, "header-secret", "", "name of the Secret with the token that the definition names")
	flags.StringVar(&o.Address, "address", fmt.Sprintf(":%d", vmexport.Port), "where volumes are given out")
	flags.StringVar(&o.CertDir, "cert-dir", "", "directory with tls.crt and tls.key to serve with")
	flags.StringVar(&o.TokenFile, "token-file", "", "file with the token")
	flags.StringVar(&deadline, "deadline", "", "when to end, such as 2030-01-31T12:00:00Z; never when left out")
	for _, required := range []string{"cert-dir", "token-file"} {
		_ = cmd.MarkFlagRequired(required) // the flags exist
	}
	return cmd
}

func newExportProxyCommand() *cobra.Command {
	var options exportproxy.Options
	base := 0
	cmd := &cobra.Command{
		Use:     "exportproxy",
		Short:   "Lets VirtualMachineExports be reached from outside the cluster",
		Example: "  slipway exportproxy --namespace kubevirt-hyperconverged",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clusterConfig(verbosity.New(base))
			if err != nil {
				return err
			}
			return exportproxy.Run(cmd.Context(), config, options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Namespace, "namespace", names.InstallNamespace, "namespace of the installation")
	flags.StringVar(&options.Address, "address", ":8443", "where exports are reached, with TLS")
	flags.StringVar(&options.HealthAddress, "health-address", ":8080", "where /healthz and /readyz are served; 0 for nowhere")
	flags.StringVar(&options.MetricsAddress, "metrics-address", ":8444", "where /metrics is served, with TLS; 0 for nowhere")
	flags.StringSliceVar(&options.Hosts, "host", nil, "further name by which the proxy is reached")
	flags.IntVar(&base, "verbosity", 1, "0 logs little, 9 everything")
	return cmd
}

const nameAndPath = "name=path; may be given several times"
