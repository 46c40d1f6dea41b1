package main

import (
	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/controllers/hyperconverged"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/manifest"
	"github.com/slipway-vm/slipway/internal/names"
)

func newManifestCommand() *cobra.Command {
	options := hyperconverged.Options{Version: version, Bundles: bundles()}
	command := &cobra.Command{
		Use:     "manifest",
		Short:   "Prints the one file that installs the operator",
		Example: "slipway manifest --image registry.example/slipway:1 --launcher-image … --guestfs-image … | kubectl apply -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return manifest.Write(cmd.OutOrStdout(), options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.SlipwayImage, "image", "", "image of slipway itself")
	flags.StringVar(&options.LauncherImage, "launcher-image", "", "image of the pods that virtual machines run in")
	flags.StringVar(&options.GuestfsImage, "guestfs-image", "", "image of the tasks that change disks")
	flags.StringVar(&options.Namespace, "namespace", names.InstallNamespace, "namespace of the installation")
	flags.StringVar(&options.KubeletRoot, "kubelet-root", "", "the kubelet's root folder on the nodes; found out when empty")
	for _, needed := range []string{"image", "launcher-image", "guestfs-image"} {
		if err := command.MarkFlagRequired(needed); err != nil {
			command.RunE = func(*cobra.Command, []string) error { return err }
		}
	}
	return command
}
