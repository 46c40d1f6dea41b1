package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	templatev1 "github.com/openshift/api/template/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
)

// openshiftTemplate is the kind that is converted.
var openshiftTemplate = kindOfSource{group: openshiftGroup, kind: kindTemplate, versions: []string{"v1"}}

func newConvertCommand(cluster Cluster) *cobra.Command {
	from, format := &source{}, ""
	command := &cobra.Command{
		Use:   "convert [NAME]",
		Short: "Prints a Template of OpenShift as a VirtualMachineTemplate",
		Long: `Prints a Template (template.openshift.io) as a VirtualMachineTemplate (template.kubevirt.io). The Template must
hold one object, a VirtualMachine. The labels that it gives its objects become labels of the VirtualMachine.`,
		Example: `  # One of the cluster, and make the VirtualMachineTemplate beside it:
  virtctl template convert debian -n catalog | kubectl apply -f -

  # One in a file:
  virtctl template convert -f template.yaml > vmtemplate.yaml

  # Use it without leaving anything in the cluster:
  virtctl template convert -f template.yaml | virtctl template process -f - -p NAME=web | kubectl create -f -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := from.resolve(args); err != nil {
				return err
			}
			if err := checkFormat(format); err != nil {
				return err
			}
			object, err := from.read(cmd, cluster, openshiftTemplate)
			if err != nil {
				return err
			}
			made, err := convert(object)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), format, made)
		},
	}
	from.addFlags(command, kindTemplate)
	command.Flags().SortFlags = false
	command.Flags().StringVarP(&format, flagOutput, "o", formatYAML, "yaml or json.")
	return command
}

// converted is a VirtualMachineTemplate without a status, which is no manifest's.
type converted struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec vmtemplatev1beta1.VirtualMachineTemplateSpec `json:"spec"`
}

// convert makes a VirtualMachineTemplate of a Template.
func convert(object *unstructured.Unstructured) (*converted, error) {
	tmpl := &templatev1.Template{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, tmpl, true); err != nil {
		return nil, fmt.Errorf("reading Template %s: %w", object.GetName(), err)
	}
	vm, err := machine(tmpl)
	if err != nil {
		return nil, fmt.Errorf("converting Template %s: %w", tmpl.Name, err)
	}
	return &converted{
		TypeMeta:   metav1.TypeMeta{APIVersion: current.String(), Kind: kindMachineTemplate},
		ObjectMeta: metav1.ObjectMeta{Namespace: tmpl.Namespace, Name: tmpl.Name, Labels: tmpl.Labels, Annotations: tmpl.Annotations},
		Spec:       vmtemplatev1beta1.VirtualMachineTemplateSpec{VirtualMachine: vm, Parameters: machineParameters(tmpl.Parameters), Message: tmpl.Message},
	}, nil
}

// machine returns the one object of a Template, with the labels that the Template gives it.
func machine(tmpl *templatev1.Template) (*runtime.RawExtension, error) {
	if len(tmpl.Objects) != 1 {
		return nil, fmt.Errorf("template must contain exactly one object, found %d; leave the VirtualMachine in it and ship the others as files of their own", len(tmpl.Objects))
	}
	vm := &unstructured.Unstructured{}
	if err := json.Unmarshal(tmpl.Objects[0].Raw, &vm.Object); err != nil {
		return nil, fmt.Errorf("objects[0]: %w", err)
	}
	if is := vm.GroupVersionKind(); is.Group != virtv1.SchemeGroupVersion.Group || is.Kind != virtv1.VirtualMachineGroupVersionKind.Kind {
		return nil, errors.New("objects[0]: it is no VirtualMachine of kubevirt.io, and a VirtualMachineTemplate holds nothing else")
	}
	if len(tmpl.ObjectLabels) > 0 {
		labels := maps.Clone(vm.GetLabels())
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, tmpl.ObjectLabels)
		vm.SetLabels(labels)
	}
	data, err := json.Marshal(vm.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding objects[0]: %w", err)
	}
	return &runtime.RawExtension{Raw: data}, nil
}

// machineParameters returns parameters of a Template as a VirtualMachineTemplate has them.
func machineParameters(of []templatev1.Parameter) []vmtemplatev1beta1.Parameter {
	parameters := make([]vmtemplatev1beta1.Parameter, len(of))
	for i, p := range of {
		parameters[i] = vmtemplatev1beta1.Parameter{
			Name: p.Name, DisplayName: p.DisplayName, Description: p.Description,
			Value: p.Value, Generate: p.Generate, From: p.From, Required: p.Required,
		}
	}
	return parameters
}
