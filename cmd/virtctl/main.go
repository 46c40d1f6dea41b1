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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "virtctl:", err)
		os.Exit(1)
	}
}

// newRootCommand lists the groups of verbs.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "virtctl",
		Short:         "Does with virtual machines and their disks what kubectl has no verb for",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	access := cluster.NewAccess(root.PersistentFlags())
	root.AddCommand(
		cache.NewCommand(access),
	)
	return root
}
