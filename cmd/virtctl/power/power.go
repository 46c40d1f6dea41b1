// Package power has the verbs that start and stop machines: start, stop and restart of VirtualMachines;
// pause, unpause, reset and soft-reboot of their instances.
package power

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// Cluster is what the verbs need of a cluster.
type Cluster interface {
	subresource.Cluster
	Client() (client.WithWatch, error)
}

// NewCommands returns the verbs.
func NewCommands(cluster Cluster) []*cobra.Command {
	return []*cobra.Command{
		newStartCommand(cluster), newStopCommand(cluster), newRestartCommand(cluster),
		newPauseCommand(cluster), newUnpauseCommand(cluster),
		newResetCommand(cluster), newSoftRebootCommand(cluster),
	}
}

// dryRun is the flag of verbs that can be tried.
type dryRun bool

func (d *dryRun) addFlag(command *cobra.Command) {
	command.Flags().BoolVar((*bool)(d), "dry-run", false, "Let the cluster check the request, and change nothing.")
}

// option is what the request says of a dry run.
func (d dryRun) option(command *cobra.Command) []string {
	if !d {
		return nil
	}
	fmt.Fprintln(command.OutOrStdout(), "Dry Run execution")
	return []string{metav1.DryRunAll}
}

// force are the flags of verbs that end a guest.
type force struct {
	force       bool
	gracePeriod int64
}

const flagGracePeriod = "grace-period"

func (f *force) addFlags(command *cobra.Command) {
	command.Flags().BoolVar(&f.force, "force", false, "Give the guest the time of --"+flagGracePeriod+" to power off, and no more. What it has not written to its disks by then is lost.")
	command.Flags().Int64Var(&f.gracePeriod, flagGracePeriod, -1, "Seconds for the guest to power off. Goes with --force.")
}

// seconds is the grace period that the user wants; nil for the VM's own.
func (f *force) seconds(command *cobra.Command) (*int64, error) {
	if command.Flags().Changed(flagGracePeriod) != f.force {
		return nil, errors.New("must both use --force=true and set --" + flagGracePeriod)
	}
	if !f.force {
		return nil, nil
	}
	return &f.gracePeriod, nil
}

func scheduled(command *cobra.Command, kind, name, verb string) {
	fmt.Fprintf(command.OutOrStdout(), "%s %s was scheduled to %s\n", kind, name, verb)
}
