// Command cluster runs a real single-node Kubernetes with Tekton on this
// machine, built from Go modules and Debian packages. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/hack/cluster/internal/cluster"
	"github.com/slipway-vm/slipway/hack/cluster/internal/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// command is the command line.
func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real single-node Kubernetes with Tekton on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		verb("up", "bring the cluster up, from whatever state it is in", cobra.NoArgs,
			func(ctx context.Context, p *cluster.Program, _ []string) error { return p.Up(ctx) }),
		verb("down", "end the machine's cluster and leave nothing but its data", cobra.NoArgs,
			func(ctx context.Context, p *cluster.Program, _ []string) error { return p.Down(ctx) }),
		verb("reset", "end this checkout's cluster and remove its data", cobra.NoArgs,
			func(ctx context.Context, p *cluster.Program, _ []string) error { return p.Reset(ctx) }),
		verb("load ARCHIVE...", "import OCI archives into the nodes", cobra.MinimumNArgs(1),
			func(ctx context.Context, p *cluster.Program, args []string) error { return p.Load(ctx, args) }),
		verb("metrics-up", "start the metrics server, for autoscalers and kubectl top; up does not", cobra.NoArgs,
			func(ctx context.Context, p *cluster.Program, _ []string) error { return p.MetricsUp(ctx) }),
		verb("metrics-down", "remove the metrics server", cobra.NoArgs,
			func(ctx context.Context, p *cluster.Program, _ []string) error { return p.MetricsDown(ctx) }),
		verb("env", "print shell lines that point kubectl at the cluster", cobra.NoArgs,
			func(_ context.Context, p *cluster.Program, _ []string) error { p.Env(); return nil }),
		verb("build", "only build, and print the folder of the Kubernetes programs", cobra.NoArgs, build),
		statusCommand(),
		kubectlCommand(),
		superviseCommand(),
		withinCommand(),
	)
	return root
}

// verb is a subcommand on the checkout's cluster.
func verb(use, short string, args cobra.PositionalArgs, run func(context.Context, *cluster.Program, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, given []string) error {
		p, err := cluster.New(os.Stdout)
		if err != nil {
			return err
		}
		return run(cmd.Context(), p, given)
	}}
}

// build prints the folder with kube-apiserver, etcd and kubectl; what else it has
// to say goes to standard error.
func build(ctx context.Context, p *cluster.Program, _ []string) error {
	p.Out = os.Stderr
	dir, err := p.Assets(ctx)
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

func statusCommand() *cobra.Command {
	var asJSON bool
	cmd := verb("status", "show whether the cluster runs, and what runs in it", cobra.NoArgs,
		func(ctx context.Context, p *cluster.Program, _ []string) error { return p.PrintStatus(ctx, asJSON) })
	cmd.Flags().BoolVar(&asJSON, "json", false, "for programs: kubeconfig, kubelet root, pool, addresses")
	return cmd
}

func kubectlCommand() *cobra.Command {
	cmd := verb("kubectl [ARGS]", "run kubectl on the cluster", cobra.ArbitraryArgs,
		func(ctx context.Context, p *cluster.Program, args []string) error { return p.Kubectl(ctx, args) })
	cmd.DisableFlagParsing = true
	return cmd
}

// superviseCommand is what up starts and leaves running.
func superviseCommand() *cobra.Command {
	return &cobra.Command{Use: "supervise FILE", Hidden: true, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return cluster.Supervise(cmd.Context(), args[0])
	}}
}

// withinCommand is how the supervisor starts the kubelet.
func withinCommand() *cobra.Command {
	return &cobra.Command{
		Use: "within SOURCE TARGET PROGRAM [ARGS]", Hidden: true, Args: cobra.MinimumNArgs(3), DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return process.Within(args[0], args[1], args[2:]) },
	}
}
