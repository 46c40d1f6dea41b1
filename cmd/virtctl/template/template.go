// Package template has the verbs for templates of VMs: process, convert and create.
package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Kinds of templates, and of what asks for one.
const (
	kubevirtGroup  = "template.kubevirt.io"
	openshiftGroup = "template.openshift.io"

	kindTemplate        = "Template"
	kindMachineTemplate = "VirtualMachineTemplate"
	kindRequest         = "VirtualMachineTemplateRequest"
)

// current is the version of template.kubevirt.io that is written.
var current = schema.GroupVersion{Group: kubevirtGroup, Version: "v1beta1"}

// Names of the flags that more than one verb has, or that an error names.
const (
	flagName       = "name"
	flagFile       = "file"
	flagOutput     = "output"
	flagParam      = "param"
	flagParamsFile = "params-file"
	flagLocal      = "local"
	flagCreate     = "create"
	flagPrint      = "print-params"
)

// Formats of --output.
const (
	formatYAML = "yaml"
	formatJSON = "json"
)

// Cluster is what the verbs need of a cluster.
type Cluster interface {
	Namespace() (string, error)
	Client() (client.WithWatch, error)
}

// NewCommand returns the group of verbs.
func NewCommand(cluster Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:   "template",
		Short: "Fills in, converts and makes templates of VMs",
		Long: `Fills in, converts and makes VirtualMachineTemplates (template.kubevirt.io): a VirtualMachine in which ${NAME}
stands for a parameter.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(newProcessCommand(cluster), newConvertCommand(cluster), newCreateCommand(cluster))
	return command
}

func checkFormat(format string) error {
	if format != formatYAML && format != formatJSON {
		return fmt.Errorf("--%s: %q is not known; write %s or %s", flagOutput, format, formatYAML, formatJSON)
	}
	return nil
}

// write prints object in the format.
func write(out io.Writer, format string, object any) error {
	var data []byte
	var err error
	if format == formatJSON {
		data, err = json.MarshalIndent(object, "", " ")
		data = append(data, '\n')
	} else {
		data, err = yaml.Marshal(object)
	}
	if err != nil {
		return fmt.Errorf("encoding what to print: %w", err)
	}
	if _, err := out.Write(data); err != nil {
		return fmt.Errorf("writing to standard output: %w", err)
	}
	return nil
}

// errNoSource says that a verb was not told what to work on.
var errNoSource = errors.New("name or file must be provided: name a template of the cluster, or give --" + flagFile)
