// Package expose has the verb that makes a Service for VMs.
package expose

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is what the verb needs of a cluster.
type Cluster interface {
	Namespace() (string, error)
	Client() (client.WithWatch, error)
}

// NewCommand returns the verb.
func NewCommand(cluster Cluster) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "expose TYPE NAME",
		Short: "Makes a Service for a VM, a VMI or a replica set",
		Long: `Makes a Service that leads to the pods of a VM, a VMI or a replica set of VMIs.

TYPE is virtualmachine (vm), virtualmachineinstance (vmi) or virtualmachineinstancereplicaset (vmirs), in any case
and also in the plural. The Service selects by the labels of the VM's template, by those of the VMI, or by the
matchLabels of the replica set; there must be some, and no other VM should have them all.

Without --port the Service has every port that the interface on the pod network lists. Where it lists none, --port
is required.`,
		Example: `  # SSH to the VM "web", on a port of every node:
  virtctl expose vm web --name web-ssh --port 22 --type NodePort

  # Port 80 of the Service leads to port 8080 of the guest:
  virtctl expose vmi web --name web --port 80 --target-port 8080

  # Every port that the interface of the VM lists, over IPv6 where the cluster has it:
  virtctl expose vm web --name web --ip-family IPv6,IPv4 --ip-family-policy PreferDualStack

  # UDP to the VMIs of a replica set, from outside:
  virtctl expose vmirs dns --name dns --port 53 --protocol UDP --type LoadBalancer`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := kindOf(args[0])
			if err != nil {
				return err
			}
			if err := o.parse(cmd.Flags().Changed); err != nil {
				return err
			}
			return o.run(cmd, cluster, target{kind: kind, word: args[0], name: args[1]})
		},
	}
	o.addFlags(command.Flags())
	_ = command.MarkFlagRequired(flagName)
	return command
}

func (o *options) run(cmd *cobra.Command, cluster Cluster, of target) error {
	var err error
	if of.namespace, err = cluster.Namespace(); err != nil {
		return err
	}
	c, err := cluster.Client()
	if err != nil {
		return err
	}
	service, err := o.make(cmd.Context(), c, of)
	if err != nil {
		return err
	}
	for _, warning := range o.warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "Warning:", warning)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Service %s successfully created for %s %s\n", service.Name, of.word, of.name)
	return nil
}

// make reads the object and creates its Service.
func (o *options) make(ctx context.Context, c client.Client, of target) (*corev1.Service, error) {
	found, err := of.read(ctx, c)
	if err != nil {
		return nil, err
	}
	service, err := o.service(of, found)
	if err != nil {
		return nil, err
	}
	if err := c.Create(ctx, service); err != nil {
		return nil, fmt.Errorf("creating Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return service, nil
}
