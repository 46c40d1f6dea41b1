// Package memorydump has the verbs that have the memory of a running machine's guest dumped.
package memorydump

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
	"github.com/slipway-vm/slipway/cmd/virtctl/vmexport"
)

// Cluster is what the verbs need of a cluster.
type Cluster interface {
	subresource.Cluster
	Client() (client.WithWatch, error)
}

// NewCommand returns memory-dump with its verbs.
func NewCommand(cluster Cluster) *cobra.Command {
	command := &cobra.Command{
		Use: "memory-dump get|download|remove", Short: "Dumps the memory of a running VM to a PersistentVolumeClaim",
		Long: `Has the memory of a running VM's guest written to a file on a PersistentVolumeClaim, for tools that look into it,
such as crash, drgn or volatility. The guest stands still meanwhile.`,
	}
	command.AddCommand(newGetCommand(cluster), newDownloadCommand(cluster), newRemoveCommand(cluster))
	return command
}

func newGetCommand(cluster Cluster) *cobra.Command {
	var name string
	var create bool
	var download vmexport.Download
	var wanted claim
	command := &cobra.Command{
		Use: "get NAME", Short: "Dumps the memory of a VM",
		Long: `Asks for a dump of the memory of the VM's guest, and returns before it is there; the VM's status.memoryDumpRequest
tells how far it is. The claim belongs to the VM from then on, so that the next dump needs not name it.`,
		Example: `  # Dump the memory of the VM "web" to the claim "dumps":
  virtctl memory-dump get web --claim-name=dumps
  # Make a claim for it that is big enough:
  virtctl memory-dump get web --claim-name=dumps --create-claim --storage-class=fast
  # Dump it once more, to the same claim, and download the dump when it is whole:
  virtctl memory-dump get web --output=web.dump.tar.gz`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed(flagOutput) {
				if err := download.Validate(); err != nil {
					return err
				}
			}
			switch {
			case create && name == "":
				return errors.New("missing claim name: --create-claim needs --claim-name")
			case !create && (wanted.class != "" || wanted.access != ""):
				return errors.New("--storage-class and --access-mode are about a new claim; add --create-claim")
			}
			if create {
				wanted.name = name
				if err := wanted.create(cmd, cluster, args[0]); err != nil {
					return err
				}
			}
			if err := put(cmd.Context(), cluster, args[0], "memorydump", &virtv1.VirtualMachineMemoryDumpRequest{ClaimName: name}); err != nil {
				return subresource.Failed("error dumping vm memory, ", err)
			}
			fmt.Fprintf(said(cmd), "Successfully submitted memory dump request of VM %s\n", args[0])
			if cmd.Flags().Changed(flagOutput) {
				return fetch(cmd, cluster, args[0], &download)
			}
			return nil
		},
	}
	set := command.Flags()
	set.StringVar(&name, "claim-name", "", "Name of the PersistentVolumeClaim; that of the last dump when left out.")
	set.BoolVar(&create, "create-claim", false, "Make the claim, as big as the dump needs.")
	set.StringVar(&wanted.class, "storage-class", "", "Storage class of the new claim; the cluster's default when left out.")
	set.StringVar(&wanted.access, "access-mode", "", "Access mode of the new claim: ReadWriteOnce, which it is when left out, or ReadWriteMany.")
	download.AddFlags(set)
	return command
}

func newRemoveCommand(cluster Cluster) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Lets go of the claim with a VM's memory dumps",
		Long: `Takes from a VM the claim that its memory was dumped to, so that another can be named. The claim and what is on it
stay. A dump that goes on is made to its end before.`,
		Example: `  # Let go of the claim that the memory of the VM "web" was dumped to:
  virtctl memory-dump remove web`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := put(cmd.Context(), cluster, args[0], "removememorydump", nil); err != nil {
				return subresource.Failed("error removing memory dump association, ", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Successfully submitted remove memory dump association of VM %s\n", args[0])
			return nil
		},
	}
}

func put(ctx context.Context, cluster Cluster, name, verb string, options any) error {
	api, err := subresource.Of(cluster)
	if err != nil {
		return err //nolint:wrapcheck // it says what it was doing
	}
	return api.Put(ctx, subresource.Machine(name), verb, options) //nolint:wrapcheck // as above
}
