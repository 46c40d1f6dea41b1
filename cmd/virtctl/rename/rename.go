// Package rename has the verb that gives a stopped VirtualMachine another name.
package rename

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
	"github.com/slipway-vm/slipway/internal/rename"
)

// Cluster is what the verb needs of a cluster.
type Cluster interface {
	subresource.Cluster
	Client() (client.WithWatch, error)
}

const verb = "rename"

// options are the verb's flags.
type options struct {
	wait    bool
	timeout time.Duration
	dryRun  bool
}

// NewCommand returns the verb.
func NewCommand(cluster Cluster) *cobra.Command {
	var o options
	command := &cobra.Command{
		Use: verb + " [vm] OLD NEW", Short: "Renames a stopped VM",
		Long: `Gives a stopped VirtualMachine another name. It keeps its disks, the addresses of its network cards and the
identity of its firmware; what is known by its name alone, such as its host name where the VM says none, changes.

The cluster carries the rename on by itself, even when this program is ended. Until the old name is gone, deleting
the VM of the new name takes it back.`,
		Example: `  # Rename the VM "web" to "shop":
  virtctl rename vm web shop

  # The same, without waiting until it is done:
  virtctl rename web shop --wait=false`,
		Args: cobra.RangeArgs(2, 3), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := namesOf(args)
			if err != nil {
				return err
			}
			if err := o.run(cmd, cluster, names); err != nil {
				return fmt.Errorf("error renaming VirtualMachine %s: %w", names.old, err)
			}
			return nil
		},
	}
	command.Flags().BoolVar(&o.wait, "wait", true, "Wait until the VM has its new name.")
	command.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "The longest time to wait.")
	command.Flags().BoolVar(&o.dryRun, "dry-run", false, "Let the cluster check the request, and change nothing.")
	return command
}

// names are the VM's.
type names struct{ old, next string }

// namesOf reads the arguments, of which the first may say that the rest names a VM.
func namesOf(args []string) (names, error) {
	if len(args) == 2 {
		return names{old: args[0], next: args[1]}, nil
	}
	of, err := subresource.KindOf(args[0])
	if err != nil || of("") != subresource.Machine("") {
		return names{}, fmt.Errorf("unsupported resource type '%s'; write vm", args[0])
	}
	return names{old: args[1], next: args[2]}, nil
}

func (o *options) run(cmd *cobra.Command, cluster Cluster, n names) error {
	api, err := subresource.Of(cluster)
	if err != nil {
		return err
	}
	request := &rename.Options{NewName: n.next, OldName: &n.old}
	if o.dryRun {
		fmt.Fprintln(cmd.OutOrStdout(), "Dry Run execution")
		request.DryRun = []string{metav1.DryRunAll}
	}
	if err := api.Put(cmd.Context(), subresource.Machine(n.old), verb, request); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "VM %s was scheduled to %s\n", n.old, verb)
	if !o.wait || o.dryRun {
		return nil
	}
	c, err := cluster.Client()
	if err != nil {
		return err
	}
	w := waiter{client: c, namespace: api.Namespace, names: n, out: cmd.OutOrStdout()}
	if err := w.wait(cmd.Context(), o.timeout); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "VM %s was renamed to %s\n", n.old, n.next)
	return nil
}
