// Command slipway is every part of Slipway but the launcher: one static program
// whose subcommands are the operator, the controllers, the API server's webhooks,
// the node agent, the importer and the tasks.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRootCommand()
	root.SetArgs(invokedAs(os.Args))
	if err := root.ExecuteContext(ctx); err != nil {
		if !isReported(err) {
			fmt.Fprintln(os.Stderr, "slipway:", err)
		}
		os.Exit(exitCode(err))
	}
}

// newRootCommand lists everything that this program does.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "slipway",
		Short:         "Provisions virtual machines on Kubernetes and keeps them running",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		newOperatorCommand(),
		newAPICommand(),
		newControllerCommand(),
		newHandlerCommand(),
		newHoldCommand(),
		newImportCommand(),
		newCopyProgramCommand(),
		newUploadServerCommand(),
		newUploadProxyCommand(),
		newExportServerCommand(),
		newExportProxyCommand(),
		newTaskCommand(),
		newEntrypointCommand(),
		newStepCacheCommand(),
		newStartRunCommand(),
		newManifestCommand(),
		newVersionCommand(),
	)
	return root
}
