package template

import (
	"errors"
	"fmt"

	templatev1 "github.com/openshift/api/template/v1"
	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/catalog/template"
)

// machineTemplate is the kind that is processed.
var machineTemplate = kindOfSource{group: kubevirtGroup, kind: kindMachineTemplate, versions: []string{"v1beta1", "v1alpha1"}}

// process are the flags.
type process struct {
	source
	format                     string
	values                     map[string]string
	valuesFile                 string
	local, create, printParams bool
}

func newProcessCommand(cluster Cluster) *cobra.Command {
	p := &process{}
	command := &cobra.Command{
		Use:   "process [NAME]",
		Short: "Fills in a VirtualMachineTemplate and prints its VirtualMachine",
		Long: `Fills in the parameters of a VirtualMachineTemplate and prints the VirtualMachine that it makes, or creates it.
A parameter without a value has its default, or what its expression generates. The template's message goes to
standard error.

The template is read and filled in here, whether it comes from the cluster or from a file, so that it takes the
right to read it and, for --create, the right to create VirtualMachines.`,
		Example: `  # What does the template "debian" of the namespace "catalog" take?
  virtctl template process debian -n catalog --print-params

  # Make a VM of it:
  virtctl template process debian -p NAME=web -p CORES=2 --create

  # Look at the VM first, or give it to kubectl for another namespace:
  virtctl template process debian -n catalog -p NAME=web
  virtctl template process debian -n catalog -p NAME=web | kubectl create -n shop -f -

  # A template in a file, values in another:
  virtctl template process -f template.yaml --params-file values.yaml -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.resolve(args); err != nil {
				return err
			}
			if err := checkFormat(p.format); err != nil {
				return err
			}
			return p.run(cmd, cluster)
		},
	}
	p.addFlags(command, kindMachineTemplate)
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVarP(&p.format, flagOutput, "o", formatYAML, "yaml or json.")
	flags.StringToStringVarP(&p.values, flagParam, "p", nil, "Value of a parameter, as NAME=VALUE. May be given several times.")
	flags.StringVar(&p.valuesFile, flagParamsFile, "", "File with the values of parameters, a map in YAML or JSON.")
	flags.BoolVar(&p.local, flagLocal, false, "Fill in the template here and not in the cluster, which is always so; for scripts that say it.")
	flags.BoolVar(&p.create, flagCreate, false, "Create the VM instead of printing it.")
	flags.BoolVar(&p.printParams, flagPrint, false, "Print the parameters of the template only.")
	for _, pair := range [][]string{{flagParam, flagParamsFile}, {flagCreate, flagFile}, {flagCreate, flagLocal}, {flagCreate, flagPrint}} {
		command.MarkFlagsMutuallyExclusive(pair...)
	}
	return command
}

func (p *process) run(cmd *cobra.Command, cluster Cluster) error {
	object, err := p.read(cmd, cluster, machineTemplate)
	if err != nil {
		return err
	}
	tmpl, err := template.FromVirtualMachineTemplate(object)
	if err != nil {
		return err
	}
	if p.printParams {
		return write(cmd.OutOrStdout(), p.format, machineParameters(tmpl.Parameters))
	}
	values := p.values
	if p.valuesFile != "" {
		if values, err = readValues(p.valuesFile); err != nil {
			return err
		}
	}
	made, err := fill(tmpl, values)
	if err != nil {
		return err
	}
	made.tell(cmd.ErrOrStderr())
	if p.create {
		return made.create(cmd, cluster)
	}
	return write(cmd.OutOrStdout(), p.format, made.VirtualMachine)
}

// filled is a template with its parameters in place.
type filled struct{ *template.Machine }

// fill puts the values into the template.
func fill(tmpl *templatev1.Template, values map[string]string) (filled, error) {
	made, err := template.ProcessVirtualMachine(tmpl, values)
	if _, missing := errors.AsType[*template.MissingError](err); missing {
		err = fmt.Errorf("give a --%s NAME=VALUE for each parameter that has no value: %w", flagParam, err)
	}
	return filled{made}, err
}
