// Command images builds the project's container images without a daemon and without a registry, and pushes them.
//
//	go run ./hack/images build [name...] [--update-locks]   make the archives that are out of date, write bin/images.json
//	go run ./hack/images push --registry R [--insecure]     copy the archives to R/<name>:<tag>
//	go run ./hack/images list                               names, references, sizes
//	go run ./hack/images unpack NAME                        build it and print the folder with its root file system
//	go run ./hack/images manifest                           what bin/images.json says
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
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

// pushOptions are the flags of push.
type pushOptions struct {
	registry string
	insecure bool
}

func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "images", Short: "Builds and pushes container images", SilenceUsage: true, SilenceErrors: true}
	var build buildOptions
	buildCommand := &cobra.Command{
		Use: "build [name...]", Short: "Builds the named images, or all", Example: "  go run ./hack/images build slipway slipway-launcher",
		RunE: func(cmd *cobra.Command, args []string) error { return runBuild(cmd.Context(), args, build) },
	}
	buildCommand.Flags().BoolVar(&build.updateLocks, "update-locks", false, "take today's Debian versions and rewrite hack/images/locks")
	buildCommand.Flags().BoolVar(&build.baseOnly, "base-only", false, "make only the lower layers, which need no program of ours")
	var push pushOptions
	pushCommand := &cobra.Command{
		Use: "push --registry R", Short: "Copies the built images to a registry", Args: cobra.NoArgs,
		Example: "  go run ./hack/images push --registry registry.example.org/slipway",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runPush(cmd.Context(), push) },
	}
	pushCommand.Flags().StringVar(&push.registry, "registry", "", "registry and path that the images' names are put under")
	pushCommand.Flags().BoolVar(&push.insecure, "insecure", false, "accept plain HTTP and unknown certificates")
	var list listOptions
	listCommand := &cobra.Command{
		Use: "list", Short: "Lists the images and what was last built", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return runList(os.Stdout, list) },
	}
	listCommand.Flags().BoolVar(&list.archives, "archives", false, "print only the paths of the archives")
	listCommand.Flags().BoolVar(&list.flags, "flags", false, "print the images as flags of slipway manifest")
	listCommand.Flags().StringVar(&list.registry, "registry", "", "with --flags: registry and path that the images were pushed under")
	unpack := &cobra.Command{
		Use: "unpack NAME", Short: "Builds an image and prints the folder with its root file system", Args: cobra.ExactArgs(1),
		Example: "  go run ./hack/images unpack slipway-launcher",
		RunE:    func(cmd *cobra.Command, args []string) error { return runUnpack(cmd.Context(), os.Stdout, args[0]) },
	}
	root.AddCommand(buildCommand, pushCommand, listCommand, unpack,
		&cobra.Command{
			Use: "manifest", Short: "Prints bin/images.json", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return runManifest(os.Stdout) },
		})
	return root
}
