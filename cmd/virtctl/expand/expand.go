// Package expand has the verb that prints a VirtualMachine with what its instance type and preference say.
package expand

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

const (
	formatYAML = "yaml"
	formatJSON = "json"
)

// options are the flags.
type options struct {
	vm, file, output string
}

// NewCommand returns the verb.
func NewCommand(cluster subresource.Cluster) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "expand",
		Short: "Prints a VM with what its instance type and preference say",
		Long: `Prints a VirtualMachine, of the cluster or of a file, with what its instance type and preference say written into
its template. Nothing is changed.`,
		Example: `  # The VM "web":
  virtctl expand --vm web

  # A manifest, as JSON:
  virtctl expand --file web.yaml --output json

  # Standard input:
  virtctl expand --file -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, cluster) },
	}
	command.Flags().StringVar(&o.vm, "vm", "", "Name of the VM.")
	command.Flags().StringVarP(&o.file, "file", "f", "", "File with the VM; - is standard input.")
	command.Flags().StringVarP(&o.output, "output", "o", formatYAML, "yaml or json.")
	command.MarkFlagsMutuallyExclusive("vm", "file")
	return command
}

func (o *options) run(cmd *cobra.Command, cluster subresource.Cluster) error {
	switch {
	case o.vm == "" && o.file == "":
		return errors.New("error invalid arguments - VirtualMachine name or file must be provided")
	case o.output != formatYAML && o.output != formatJSON:
		return fmt.Errorf("error not supported output format defined: %s", o.output)
	}
	api, err := subresource.Of(cluster)
	if err != nil {
		return err
	}
	name, data := o.vm, []byte(nil)
	if o.vm != "" {
		data, err = api.Get(cmd.Context(), subresource.Machine(o.vm), "expand-spec", nil)
	} else {
		var vm *virtv1.VirtualMachine
		if vm, err = o.read(cmd.InOrStdin()); err != nil {
			return err
		}
		name = vm.Name
		data, err = put(cmd, api, vm)
	}
	if err != nil {
		return fmt.Errorf("error expanding VirtualMachine - %s in namespace - %s: %w", name, api.Namespace, err)
	}
	return o.print(cmd, data)
}

func put(cmd *cobra.Command, api *subresource.API, vm *virtv1.VirtualMachine) ([]byte, error) {
	body, err := json.Marshal(vm)
	if err != nil {
		return nil, fmt.Errorf("encoding the VM: %w", err)
	}
	return api.PutNamespaced(cmd.Context(), "expand-vm-spec", body)
}

func (o *options) read(stdin io.Reader) (*virtv1.VirtualMachine, error) {
	var data []byte
	var err error
	if o.file == "-" {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(o.file)
	}
	if err != nil {
		return nil, fmt.Errorf("error reading file %w", err)
	}
	vm := &virtv1.VirtualMachine{}
	if err := yaml.Unmarshal(data, vm); err != nil {
		return nil, fmt.Errorf("error decoding VirtualMachine %w", err)
	}
	return vm, nil
}

func (o *options) print(cmd *cobra.Command, data []byte) error {
	vm := &virtv1.VirtualMachine{}
	err := json.Unmarshal(data, vm)
	vm.SetGroupVersionKind(virtv1.VirtualMachineGroupVersionKind)
	var text []byte
	switch {
	case err != nil:
	case o.output == formatJSON:
		text, err = json.MarshalIndent(vm, "", " ")
	default:
		text, err = yaml.Marshal(vm)
	}
	if err != nil {
		return fmt.Errorf("printing the VM: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s", text)
	return nil
}
