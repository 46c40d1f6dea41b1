// Command virtctl is the user's program beside kubectl. Each group of verbs has its folder.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/cmd/virtctl/cache"
	"github.com/slipway-vm/slipway/cmd/virtctl/cluster"
	"github.com/slipway-vm/slipway/cmd/virtctl/create"
	"github.com/slipway-vm/slipway/cmd/virtctl/expose"
	"github.com/slipway-vm/slipway/cmd/virtctl/help"
	"github.com/slipway-vm/slipway/cmd/virtctl/template"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	program := help.Program(os.Args[0])
	if err := newRootCommand(program).ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
		os.Exit(1)
	}
}

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
		cache.NewCommand(access),
		create.NewCommand(access),
		expose.NewCommand(access),
		template.NewCommand(access),
		help.NewOptionsCommand(),
	)
	help.Set(root, program)
	return root
}
