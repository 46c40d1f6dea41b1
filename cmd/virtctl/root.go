package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/cmd/virtctl/adm"
	"github.com/slipway-vm/slipway/cmd/virtctl/cache"
	"github.com/slipway-vm/slipway/cmd/virtctl/cluster"
	"github.com/slipway-vm/slipway/cmd/virtctl/console"
	"github.com/slipway-vm/slipway/cmd/virtctl/create"
	"github.com/slipway-vm/slipway/cmd/virtctl/credentials"
	"github.com/slipway-vm/slipway/cmd/virtctl/devices"
	"github.com/slipway-vm/slipway/cmd/virtctl/expand"
	"github.com/slipway-vm/slipway/cmd/virtctl/expose"
	"github.com/slipway-vm/slipway/cmd/virtctl/guest"
	"github.com/slipway-vm/slipway/cmd/virtctl/guestfs"
	"github.com/slipway-vm/slipway/cmd/virtctl/help"
	"github.com/slipway-vm/slipway/cmd/virtctl/imageupload"
	"github.com/slipway-vm/slipway/cmd/virtctl/memorydump"
	"github.com/slipway-vm/slipway/cmd/virtctl/objectgraph"
	"github.com/slipway-vm/slipway/cmd/virtctl/portforward"
	"github.com/slipway-vm/slipway/cmd/virtctl/power"
	"github.com/slipway-vm/slipway/cmd/virtctl/rename"
	"github.com/slipway-vm/slipway/cmd/virtctl/ssh"
	"github.com/slipway-vm/slipway/cmd/virtctl/template"
	"github.com/slipway-vm/slipway/cmd/virtctl/undelete"
	"github.com/slipway-vm/slipway/cmd/virtctl/usbredir"
	about "github.com/slipway-vm/slipway/cmd/virtctl/version"
	"github.com/slipway-vm/slipway/cmd/virtctl/vmexport"
	"github.com/slipway-vm/slipway/cmd/virtctl/vnc"
	"github.com/slipway-vm/slipway/cmd/virtctl/volume"
)

// version is set by the linker: -X main.version=….
var version = "devel"

// newRootCommand lists the groups of verbs. Program is how the user calls the program.
func newRootCommand(program string) *cobra.Command {
	root := &cobra.Command{
		Short:         "Does with virtual machines and their disks what kubectl has no verb for",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(os.Stdout)
	access := cluster.NewAccess(root.PersistentFlags())
	root.AddCommand(
		adm.NewCommand(access),
		cache.NewCommand(access),
		console.NewCommand(access),
		create.NewCommand(access),
		credentials.NewCommand(access),
		devices.NewCommand(access),
		expand.NewCommand(access),
		expose.NewCommand(access),
		guestfs.NewCommand(access),
		imageupload.NewCommand(access),
		memorydump.NewCommand(access),
		objectgraph.NewCommand(access),
		portforward.NewCommand(access),
		rename.NewCommand(access),
		template.NewCommand(access),
		undelete.NewCommand(access),
		usbredir.NewCommand(access),
		about.NewCommand(access, version),
		vmexport.NewCommand(access),
		vnc.NewCommand(access),
		help.NewOptionsCommand(),
	)
	root.AddCommand(guest.NewCommands(access)...)
	root.AddCommand(power.NewCommands(access)...)
	root.AddCommand(ssh.NewCommands(access)...)
	root.AddCommand(volume.NewCommands(access)...)
	about.WarnWhereVerbsFail(root, access, version)
	help.Set(root, program)
	return root
}
