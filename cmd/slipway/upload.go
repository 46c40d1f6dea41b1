package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/importer/uploadproxy"
	"github.com/slipway-vm/slipway/importer/uploadserver"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
	"github.com/slipway-vm/slipway/internal/verbosity"
)

// newUploadServerCommand waits for an image for one volume; the DataVolume controller runs it in a pod.
func newUploadServerCommand() *cobra.Command {
	var o uploadserver.Options
	var spoken tlsFlags
	level := 0
	cmd := &cobra.Command{
		Use:   "upload-server",
		Short: "Fills a volume with a disk image that is sent to it",
		Long: `Takes one disk image from cdi-uploadproxy, of any of the formats that "slipway import" reads, writes it to a block device
or a disk file as it comes, and ends. With --archive it takes a tar archive and unpacks it into a directory. One pass, in
bounded memory.`,
		Example: `  slipway upload-server --cert-dir ./certs --target ./disk.img --size 21474836480`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Token = os.Getenv(transfer.EnvToken)
			var err error
			if o.TLS, err = spoken.policy(); err != nil {
				return err
			}
			logger := verbosity.New(level).Logger()
			ctrl.SetLogger(logger)
			return uploadserver.Run(ctrl.LoggerInto(cmd.Context(), logger), o)
		},
	}
	flags := cmd.Flags()
	spoken.add(flags)
	flags.BoolVar(&o.Import.Archive, "archive", false, "what is sent is a tar archive, to unpack into the directory --target")
	flags.StringVar(&o.Import.Target.Path, "target", "", "block device, or the file of the disk; with --archive a directory")
	flags.Int64Var(&o.Import.Target.Size, "size", 0, "size of the disk in bytes; 0 is the image's own")
	flags.BoolVar(&o.Import.Target.Preallocate, "preallocate", false, "reserve the disk's full size")
	flags.StringVar(&o.Import.ScratchDir, "scratch", "", "directory for an image that cannot be read in order (default: beside the disk's file)")
	flags.IntVar(&o.Import.Writers, "writers", 4, "how many blocks are written at a time")
	flags.StringVar(&o.Address, "address", fmt.Sprintf(":%d", upload.ServerPort), "where images are taken")
	flags.StringVar(&o.ProgressAddress, "progress-address", fmt.Sprintf(":%d", upload.ServerProgressPort), "where the progress is served")
	flags.StringVar(&o.CertDir, "cert-dir", "", "directory with tls.crt and tls.key to serve with, and ca.crt, the authorities of clients")
	flags.StringVar(&o.Client, "client", upload.ClientName, "common name of the one client that may send")
	flags.StringVar(&o.TerminationLog, "termination-log", "", "file that takes the result as JSON")
	addVerbosity(flags, &level)
	for _, required := range []string{"target", "cert-dir"} {
		_ = cmd.MarkFlagRequired(required) // the flags exist
	}
	return cmd
}

// addVerbosity adds the flag of how much a program logs that runs in a pod for one disk.
func addVerbosity(flags *pflag.FlagSet, level *int) {
	flags.IntVar(level, verbosity.Flag, 1, "how much is logged: 0 little, 9 everything")
}

// tlsFlags are the flags that say how a server speaks TLS.
type tlsFlags struct {
	version string
	ciphers []string
}

func (t *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&t.version, tlspolicy.FlagMinVersion, "", "least version of TLS, such as VersionTLS13 (default VersionTLS12)")
	flags.StringSliceVar(&t.ciphers, tlspolicy.FlagCiphers, nil, "ciphers of versions before TLS 1.3, by the names of the IANA")
}

func (t *tlsFlags) policy() (*tlspolicy.Policy, error) { return tlspolicy.Parse(t.version, t.ciphers) }

func newUploadProxyCommand() *cobra.Command {
	var options uploadproxy.Options
	base := 0
	cmd := &cobra.Command{
		Use:     "uploadproxy",
		Short:   "Takes disk images from outside the cluster and hands them on to the upload servers of claims",
		Example: "  slipway uploadproxy --namespace kubevirt-hyperconverged",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := verbosity.New(base)
			config, err := clusterConfig(level)
			if err != nil {
				return err
			}
			options.Extend = level.FollowCDI
			return uploadproxy.Run(cmd.Context(), config, options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Namespace, "namespace", names.InstallNamespace, "namespace of the installation")
	flags.StringVar(&options.Address, "address", ":8443", "where images are taken, with TLS")
	flags.StringVar(&options.HealthAddress, "health-address", ":8080", "where /healthz and /readyz are served; 0 for nowhere")
	flags.StringVar(&options.MetricsAddress, "metrics-address", ":8444", "where /metrics is served, with TLS; 0 for nowhere")
	flags.StringSliceVar(&options.Hosts, "host", nil, "further name by which the proxy is reached")
	flags.IntVar(&base, "verbosity", 1, "0 logs little, 9 everything; while the CDI object's logVerbosity says nothing")
	return cmd
}
