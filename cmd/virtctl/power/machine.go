package power

import (
	"github.com/spf13/cobra"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// machineVerb is a verb of a VirtualMachine.
type machineVerb struct {
	use, short, long, example string
	// options makes the body of the request of the flags.
	options func(*cobra.Command) (any, error)
	// failed is how an error begins.
	failed func() string
}

func (v machineVerb) command(cluster Cluster) *cobra.Command {
	return &cobra.Command{
		Use: v.use + " VM", Short: v.short, Long: v.long, Example: v.example,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := v.options(cmd)
			if err != nil {
				return err
			}
			api, err := subresource.Of(cluster)
			if err != nil {
				return err
			}
			if err := api.Put(cmd.Context(), subresource.Machine(args[0]), v.use, options); err != nil {
				return subresource.Failed(v.failed(), err)
			}
			scheduled(cmd, "VM", args[0], v.use)
			return nil
		},
	}
}

func newStartCommand(cluster Cluster) *cobra.Command {
	var paused bool
	var dry dryRun
	command := machineVerb{
		use: "start", short: "Starts a VM",
		long: `Starts a VirtualMachine that does not run.

A VM whose run strategy is Halted is given Always. With RerunOnFailure and Manual the strategy stays, and the
start is requested in the VM's status. A VM that runs Always or Once starts by itself.`,
		example: `  # Start the VM "web":
  virtctl start web

  # Load its guest, and let it stand still until "virtctl unpause vm web":
  virtctl start web --paused`,
		options: func(cmd *cobra.Command) (any, error) {
			return &virtv1.StartOptions{Paused: paused, DryRun: dry.option(cmd)}, nil
		},
		failed: func() string { return "Error starting VirtualMachine " },
	}.command(cluster)
	command.Flags().BoolVar(&paused, "paused", false, "Start the guest paused.")
	dry.addFlag(command)
	return command
}

func newStopCommand(cluster Cluster) *cobra.Command {
	var ended force
	var dry dryRun
	command := machineVerb{
		use: "stop", short: "Stops a VM",
		long: `Stops a VirtualMachine: its guest is asked to power off, and is powered off by force when its grace period is over.

A VM that runs Always or Once is given the run strategy Halted. With RerunOnFailure and Manual the strategy stays,
and the stop is requested in the VM's status.`,
		example: `  # Shut the VM "web" down:
  virtctl stop web

  # Pull its plug:
  virtctl stop web --force --grace-period 0`,
		options: func(cmd *cobra.Command) (any, error) {
			grace, err := ended.seconds(cmd)
			return &virtv1.StopOptions{GracePeriod: grace, DryRun: dry.option(cmd)}, err
		},
		failed: func() string {
			if ended.force {
				return "error force stopping VirtualMachine: "
			}
			return "error stopping VirtualMachine "
		},
	}.command(cluster)
	ended.addFlags(command)
	dry.addFlag(command)
	return command
}

func newRestartCommand(cluster Cluster) *cobra.Command {
	var ended force
	var dry dryRun
	command := machineVerb{
		use: "restart", short: "Restarts a VM",
		long: `Stops a VirtualMachine and starts it again, in a new pod, so that changes of the VM take effect. To restart the
guest alone there are reset and soft-reboot.`,
		example: `  # Shut the VM "web" down, and start it again:
  virtctl restart web

  # The same without waiting for its guest:
  virtctl restart web --force --grace-period 0`,
		options: func(cmd *cobra.Command) (any, error) {
			grace, err := ended.seconds(cmd)
			return &virtv1.RestartOptions{GracePeriodSeconds: grace, DryRun: dry.option(cmd)}, err
		},
		failed: func() string {
			if ended.force {
				return "error force restarting VirtualMachine: "
			}
			return "error restarting VirtualMachine: "
		},
	}.command(cluster)
	ended.addFlags(command)
	dry.addFlag(command)
	return command
}
