package template

import (
	"encoding/json"
	"errors"
	"fmt"

	templatev1 "github.com/openshift/api/template/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
)

// FromVirtualMachineTemplate returns a VirtualMachineTemplate, of any version of
// template.kubevirt.io, as a Template with one object. A field that it does not know is an error.
func FromVirtualMachineTemplate(from *unstructured.Unstructured) (*templatev1.Template, error) {
	var spec struct {
		VirtualMachine map[string]any `json:"virtualMachine"`
		// Parameters have the fields of OpenShift's.
		Parameters []templatev1.Parameter `json:"parameters,omitempty"`
		Message    string                 `json:"message,omitempty"`
	}
	tree, _, err := unstructured.NestedMap(from.Object, "spec")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, &spec, true)
	}
	if err == nil && spec.VirtualMachine == nil {
		err = errors.New("spec.virtualMachine is required")
	}
	if err != nil {
		return nil, fmt.Errorf("reading VirtualMachineTemplate %s/%s: %w", from.GetNamespace(), from.GetName(), err)
	}
	// Whatever the object says of itself: the field's engine reads it as a VirtualMachine, too.
	spec.VirtualMachine["apiVersion"], spec.VirtualMachine["kind"] = virtv1.SchemeGroupVersion.String(), "VirtualMachine"
	data, err := json.Marshal(spec.VirtualMachine)
	if err != nil {
		return nil, fmt.Errorf("encoding the VirtualMachine of VirtualMachineTemplate %s/%s: %w", from.GetNamespace(), from.GetName(), err)
	}
	to := &templatev1.Template{Message: spec.Message, Parameters: spec.Parameters, Objects: []runtime.RawExtension{{Raw: data}}}
	to.Namespace, to.Name = from.GetNamespace(), from.GetName()
	to.Labels, to.Annotations = from.GetLabels(), from.GetAnnotations()
	return to, nil
}

// Machine is what a VirtualMachineTemplate turns into.
type Machine struct {
	VirtualMachine *virtv1.VirtualMachine
	// Message is the template's message to its user, parameters filled in.
	Message string
	// Unused names the declared parameters that nothing refers to.
	Unused []string
}

// ProcessVirtualMachine is Process for what FromVirtualMachineTemplate returned. A field that a VirtualMachine does not have is an error.
func ProcessVirtualMachine(tmpl *templatev1.Template, values map[string]string) (*Machine, error) {
	processed, err := Process(tmpl, values)
	if err != nil {
		return nil, err
	}
	made := &Machine{VirtualMachine: &virtv1.VirtualMachine{}, Message: processed.Message, Unused: processed.Unused}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(processed.Objects[0].Object, made.VirtualMachine, true)
	if err != nil {
		return nil, fmt.Errorf("reading the VirtualMachine of VirtualMachineTemplate %s: %w", tmpl.Name, err)
	}
	return made, nil
}
