package template

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// readValues reads the values of parameters from a file.
func readValues(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flagParamsFile, err)
	}
	values := map[string]string{}
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return nil, fmt.Errorf("--%s: reading %s: %w; write NAME: \"value\" lines, numbers in quotes", flagParamsFile, path, err)
	}
	return values, nil
}

// tell writes what the user should know beside the VM.
func (f filled) tell(out io.Writer) {
	for _, name := range f.Unused {
		fmt.Fprintf(out, "Warning: nothing in the template refers to the parameter %s\n", name)
	}
	if f.Message != "" {
		fmt.Fprintln(out, strings.TrimRight(f.Message, "\n"))
	}
}

// create makes the VM, in the namespace that the template gives it or else in that of the flags.
func (f filled) create(cmd *cobra.Command, cluster Cluster) error {
	vm := f.VirtualMachine
	if vm.Namespace == "" {
		var err error
		if vm.Namespace, err = cluster.Namespace(); err != nil {
			return err
		}
	}
	c, err := cluster.Client()
	if err != nil {
		return err
	}
	if err := c.Create(cmd.Context(), vm); err != nil {
		return fmt.Errorf("creating VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "virtualmachine.kubevirt.io/%s created\n", vm.Name)
	return nil
}
