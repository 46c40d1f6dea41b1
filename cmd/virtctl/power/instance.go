package power

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

const (
	verbPause   = "pause"
	verbUnpause = "unpause"
)

func newPauseCommand(cluster Cluster) *cobra.Command {
	var dry dryRun
	command := &cobra.Command{
		Use: verbPause + " vm|vmi NAME", Short: "Pauses a VM",
		Long: `Lets the guest of a VM or a VMI stand still. It keeps its memory and its place, and goes on with unpause.

The kind is virtualmachine (vm) or virtualmachineinstance (vmi), in any case and also in the plural.`,
		Example: `  # Pause the VM "web":
  virtctl pause vm web`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: completeKind,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[1]
			vm, err := readMachine(cmd.Context(), cluster, args)
			if err != nil {
				return err
			}
			err = putInstance(cmd.Context(), cluster, name, verbPause, &virtv1.PauseOptions{DryRun: dry.option(cmd)})
			if err != nil {
				return pauseFailed(vm, name, err)
			}
			scheduled(cmd, "VMI", name, verbPause)
			return nil
		},
	}
	dry.addFlag(command)
	return command
}

// pauseFailed explains that an instance cannot be paused; vm is its VirtualMachine where the user named that.
func pauseFailed(vm *virtv1.VirtualMachine, name string, err error) error {
	if vm == nil || !apierrors.IsNotFound(err) {
		return subresource.Failed("Error pausing VirtualMachineInstance "+name+": ", err)
	}
	strategy, invalid := vm.RunStrategy()
	switch {
	case invalid != nil:
		return subresource.Failed("Error pausing VirtualMachineInstance "+name+": ", invalid)
	case strategy == virtv1.RunStrategyHalted:
		return subresource.Failed("Error pausing VirtualMachineInstance "+name+". ", errors.New("VirtualMachine "+name+" is not set to run"))
	}
	return subresource.Failed("Error pausing VirtualMachineInstance "+name+", ", errors.New("it was not found"))
}

func newUnpauseCommand(cluster Cluster) *cobra.Command {
	var dry dryRun
	command := &cobra.Command{
		Use: verbUnpause + " vm|vmi NAME", Short: "Unpauses a VM",
		Long: `Lets the paused guest of a VM or a VMI go on.

The kind is virtualmachine (vm) or virtualmachineinstance (vmi), in any case and also in the plural.`,
		Example: `  # Unpause the VM "web":
  virtctl unpause vm web`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: completeKind,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[1]
			if _, err := readMachine(cmd.Context(), cluster, args); err != nil {
				return err
			}
			err := putInstance(cmd.Context(), cluster, name, verbUnpause, &virtv1.UnpauseOptions{DryRun: dry.option(cmd)})
			if err != nil {
				return subresource.Failed("Error unpausing VirtualMachineInstance "+name+": ", err)
			}
			scheduled(cmd, "VMI", name, verbUnpause)
			return nil
		},
	}
	dry.addFlag(command)
	return command
}

func newResetCommand(cluster Cluster) *cobra.Command {
	return instanceVerb(cluster, "reset", "reset", &cobra.Command{
		Short: "Resets a VMI",
		Long:  "Restarts the guest of a VMI at once, as by the reset button of a machine. Its pod stays.",
		Example: `  # Reset the VMI "web":
  virtctl reset web`,
	}, "Error reseting VirtualMachineInstance ") //nolint:misspell // KubeVirt's own word, by which scripts know it
}

func newSoftRebootCommand(cluster Cluster) *cobra.Command {
	return instanceVerb(cluster, "soft-reboot", "softreboot", &cobra.Command{
		Short: "Asks the guest of a VMI to reboot",
		Long:  "Asks the guest of a VMI to reboot, through its agent, or else by ACPI. Its pod stays.",
		Example: `  # Let the guest of the VMI "web" reboot:
  virtctl soft-reboot web`,
	}, "Error soft rebooting VirtualMachineInstance ")
}

// instanceVerb completes command, a verb of an instance without options.
func instanceVerb(cluster Cluster, verb, path string, command *cobra.Command, failed string) *cobra.Command {
	command.Use = verb + " VMI"
	command.Args, command.ValidArgsFunction = cobra.ExactArgs(1), cobra.NoFileCompletions
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := putInstance(cmd.Context(), cluster, args[0], path, nil); err != nil {
			return subresource.Failed(failed+args[0]+": ", err)
		}
		scheduled(cmd, "VMI", args[0], verb)
		return nil
	}
	return command
}

func putInstance(ctx context.Context, cluster Cluster, name, verb string, options any) error {
	api, err := subresource.Of(cluster)
	if err != nil {
		return err
	}
	return api.Put(ctx, subresource.Instance(name), verb, options)
}

// readMachine reads the VirtualMachine that args, a kind and a name, name; it is nil where they name an instance.
func readMachine(ctx context.Context, cluster Cluster, args []string) (*virtv1.VirtualMachine, error) {
	object, err := subresource.KindOf(args[0])
	if err != nil {
		return nil, fmt.Errorf("%w; write vm or vmi", err)
	}
	if object(args[1]) != subresource.Machine(args[1]) {
		return nil, nil
	}
	namespace, err := cluster.Namespace()
	if err != nil {
		return nil, err
	}
	c, err := cluster.Client()
	if err != nil {
		return nil, err
	}
	vm := &virtv1.VirtualMachine{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: args[1]}, vm); err != nil {
		return nil, subresource.Failed("Error getting VirtualMachine "+args[1]+": ", err)
	}
	return vm, nil
}

func completeKind(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"vm", "vmi"}, cobra.ShellCompDirectiveNoFileComp
}
