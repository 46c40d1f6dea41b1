// Package objectgraph has the verb that prints which objects a VM is made of.
package objectgraph

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

const (
	formatJSON = "json"
	formatYAML = "yaml"
)

// options are the flags.
type options struct {
	vmi, excludeOptional bool
	selector             map[string]string
	output               string
}

// NewCommand returns the verb.
func NewCommand(cluster subresource.Cluster) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "objectgraph VM|VMI",
		Short: "Prints which objects a VM is made of",
		Long: `Prints the objects that a VM, or with --vmi an instance, is made of, as a tree of references: its pod, volumes,
claims, Secrets, ConfigMaps, instance type, preference and networks. It says what they are for in the label
kubevirt.io/dependency-type: storage, network, compute or config.`,
		Example: `  # What the VM "web" is made of:
  virtctl objectgraph web

  # Its disks alone:
  virtctl objectgraph web --selector kubevirt.io/dependency-type=storage`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, cluster, args[0]) },
	}
	command.Flags().BoolVar(&o.vmi, "vmi", false, "Ask for an instance instead of a VM.")
	command.Flags().BoolVar(&o.excludeOptional, "exclude-optional", false, "Leave out what the VM can do without on another cluster: instance type, preference, networks.")
	command.Flags().StringToStringVar(&o.selector, "selector", nil, "Labels of the nodes to print, as KEY=VALUE.")
	command.Flags().StringVarP(&o.output, "output", "o", formatJSON, "json or yaml.")
	return command
}

func (o *options) run(cmd *cobra.Command, cluster subresource.Cluster, name string) error {
	if o.output != formatJSON && o.output != formatYAML {
		return fmt.Errorf("unsupported output format: %s (must be 'json' or 'yaml')", o.output)
	}
	api, err := subresource.Of(cluster)
	if err != nil {
		return err
	}
	wanted := &virtv1.ObjectGraphOptions{IncludeOptionalNodes: new(!o.excludeOptional)}
	if len(o.selector) > 0 {
		wanted.LabelSelector = &metav1.LabelSelector{MatchLabels: o.selector}
	}
	object, kind := subresource.Machine(name), "VirtualMachine"
	if o.vmi {
		object, kind = subresource.Instance(name), "VirtualMachineInstance"
	}
	data, err := api.GetBy(cmd.Context(), object, "objectgraph", wanted)
	if err != nil {
		return fmt.Errorf("error listing object graph of %s %s: %w", kind, name, err)
	}
	root := &virtv1.ObjectGraphNode{}
	if err := json.Unmarshal(data, root); err != nil {
		return fmt.Errorf("decoding the object graph: %w", err)
	}
	var text []byte
	if o.output == formatYAML {
		text, err = yaml.Marshal(root)
	} else {
		text, err = json.MarshalIndent(root, "", "  ")
	}
	if err != nil {
		return fmt.Errorf("encoding the object graph: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
	return nil
}
