// Command bundle makes Tekton bundles of the tasks and of the pipelines, and pipelines whose tasks
// come from a resolver.
//
//	go run ./hack/bundle build --registry R [--out DIR]     write both bundles as an OCI layout, print their references
//	go run ./hack/bundle push --registry R [--insecure]     push them to R/slipway-tasks and R/slipway-pipelines
//	go run ./hack/bundle print tasks                        the tasks, with the images set
//	go run ./hack/bundle print pipelines --from-namespace N the pipelines, with their tasks fetched from there
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

func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "bundle", Short: "Tekton bundles of the tasks and pipelines", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(newBuildCommand(), newPushCommand(), newPrintCommand())
	return root
}

// flags adds those that build and push share.
func (o *options) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.registry, "registry", "", "registry and path under which clusters find the bundles and images")
	cmd.Flags().StringVar(&o.tag, "tag", "devel", "tag of the bundles")
	o.imageFlag(cmd)
}

func (o *options) imageFlag(cmd *cobra.Command) {
	cmd.Flags().StringToStringVar(&o.images, "image", nil, "image of steps, as NAME-IN-THE-MANIFESTS=REFERENCE; by default those of bin/images.json")
}

func newBuildCommand() *cobra.Command {
	var o options
	var out string
	cmd := &cobra.Command{
		Use: "build --registry R", Short: "Writes the bundles as an OCI layout", Args: cobra.NoArgs,
		Example: "  go run ./hack/bundle build --registry registry.example.com/slipway",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runBuild(cmd.OutOrStdout(), o, out) },
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&out, "out", "bin/bundles", "folder to write")
	return cmd
}

func newPushCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "push --registry R", Short: "Pushes the bundles to a registry", Args: cobra.NoArgs,
		Example: "  go run ./hack/bundle push --registry registry.example.com/slipway",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runPush(cmd.Context(), cmd.OutOrStdout(), o) },
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.insecure, "insecure", false, "accept plain HTTP")
	return cmd
}

func newPrintCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "print", Short: "Prints tasks or pipelines as YAML"}
	var tasks options
	printTasks := &cobra.Command{
		Use: "tasks", Short: "Prints the tasks, without their rights", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPrintTasks(cmd.OutOrStdout(), tasks) },
	}
	tasks.imageFlag(printTasks)
	printTasks.Flags().StringVar(&tasks.registry, "registry", "", "registry and path under which clusters find the images")
	printTasks.Flags().StringVar(&tasks.out, "out", "", "folder to write a file for each task to, instead of printing")
	var from sources
	printPipelines := &cobra.Command{
		Use: "pipelines", Short: "Prints the pipelines, with the tasks taken from a namespace, bundle, hub or repository", Args: cobra.NoArgs,
		Example: "  go run ./hack/bundle print pipelines --from-namespace slipway-catalog > pipelines.yaml",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runPrintPipelines(cmd.OutOrStdout(), from) },
	}
	printPipelines.Flags().StringVar(&from.namespace, "from-namespace", "", "namespace that has the tasks, for the cluster resolver")
	printPipelines.Flags().StringVar(&from.bundle, "from-bundle", "", "reference of the bundle of tasks, for the bundles resolver")
	printPipelines.Flags().StringVar(&from.hub, "from-hub", "", "repository and version at Artifact Hub, as slipway-tasks@0.1.0, for the hub resolver")
	printPipelines.Flags().StringVar(&from.git, "from-git", "", "repository, revision and folder, as https://git.example.com/builds@main:tasks, for the git resolver")
	cmd.AddCommand(printTasks, printPipelines)
	return cmd
}
