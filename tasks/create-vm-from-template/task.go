// Package createvmfromtemplate creates a VirtualMachine from a Template.
package createvmfromtemplate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	templatev1 "github.com/openshift/api/template/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/catalog/template"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Exit codes that clients know.
const (
	codeGeneric = 1
	codeCreate  = 4
	codeResults = 6
)

// labelRun marks the VM that a TaskRun made, by which its retry finds it.
const labelRun = names.Domain + "taskrun-uid"

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "create-vm-from-template",
		Title:   "Create a VM from a template",
		Summary: "Fills in the parameters of a Template (template.openshift.io) and creates its VirtualMachine.",
		Details: `
Parameters are read strictly: a required one without a value, a value for none, and a reference to none are errors.
Other objects of the template are created as well; the ServiceAccount needs the right to. A retry of the same TaskRun takes up the VirtualMachine
that its earlier try made; another VirtualMachine of its name is an error.

Exit codes: 1 the template or its parameters are wrong, 4 the VirtualMachine could not be created, 6 results, 255 a parameter is wrong.`,
		Image: declare.Slipway,
		Params: []declare.Param{
			{Name: "templateName", Description: "Name of the Template.", Required: true, Kind: "vm-template-name"},
			{Name: "templateNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "namespace"},
			{Name: "templateParams", Description: "Values of the template's parameters, each as KEY:VALUE; an item without a colon continues the value before it after a space.", Array: true, Kind: "template-params-array"},
			{Name: "vmNamespace", Description: "Namespace of the VirtualMachine; by default the TaskRun's.", Kind: "namespace"},
			{Name: "startVM", Description: "Start the VirtualMachine, whatever the template says.", Kind: "boolean"},
			{Name: "runStrategy", Description: "Run strategy of the VirtualMachine, instead of the template's: Always or Halted."},
			{Name: "setOwnerReference", Description: "Make the TaskRun own the VirtualMachine, so that it goes with the run.", Default: "false", Kind: "boolean"},
		},
		Results: []declare.Result{
			{Name: "name", Description: "Name of the VirtualMachine."},
			{Name: "namespace", Description: "Namespace of the VirtualMachine."},
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"template.openshift.io"}, Resources: []string{"templates"}, Verbs: []string{"get"}},
			{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines"}, Verbs: []string{"get", "list", "create"}},
		},
		Examples: []declare.Example{{
			Title: "A VM with a name",
			Params: map[string]any{
				"templateName":   "example-template",
				"templateParams": []string{"NAME:example-vm"},
				"startVM":        "true",
			},
		}},
		Run: run,
	}
}

func run(ctx context.Context, call *declare.Call) error {
	values, err := templateParams(call.Array("templateParams"))
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	objects, err := process(ctx, call, values)
	if err != nil {
		return declare.Coded(codeGeneric, err)
	}
	vm, others, err := virtualMachine(call, objects)
	if err != nil {
		return declare.Coded(codeGeneric, err)
	}
	made, err := create(ctx, call, vm, others)
	if err != nil {
		return declare.Coded(codeCreate, err)
	}
	if err := show(call, made); err != nil {
		return declare.Coded(codeResults, err)
	}
	return declare.Coded(codeResults, errors.Join(call.Result("name", made.Name), call.Result("namespace", made.Namespace)))
}

// templateParams reads items of the form KEY:VALUE; an item without a colon continues the one before.
func templateParams(items []string) (map[string]string, error) {
	values := map[string]string{}
	last := ""
	for _, item := range items {
		key, value, ok := strings.Cut(item, ":")
		switch {
		case ok:
			last = strings.TrimSpace(key)
			values[last] = value
		case last == "":
			return nil, fmt.Errorf("templateParams: %q is not of the form KEY:VALUE", item)
		default:
			values[last] += " " + item
		}
	}
	return values, nil
}

func process(ctx context.Context, call *declare.Call, values map[string]string) ([]*unstructured.Unstructured, error) {
	key := client.ObjectKey{Namespace: call.NamespaceOr("templateNamespace"), Name: call.String("templateName")}
	var tmpl templatev1.Template
	if err := call.Client.Get(ctx, key, &tmpl); err != nil {
		return nil, fmt.Errorf("getting Template %s: %w", key, err)
	}
	processed, err := template.Process(&tmpl, values)
	if err != nil {
		return nil, err
	}
	if len(processed.Unused) > 0 {
		call.Log.Warn("the template declares parameters that nothing in it refers to", "parameters", processed.Unused)
	}
	if processed.Message != "" {
		call.Log.Info("the template says", "message", processed.Message)
	}
	return processed.Objects, nil
}

// virtualMachine picks the template's VM, prepared as the task's parameters ask, and the objects beside it.
func virtualMachine(call *declare.Call, objects []*unstructured.Unstructured) (*virtv1.VirtualMachine, []*unstructured.Unstructured, error) {
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GroupVersionKind().Group == virtv1.SchemeGroupVersion.Group && o.GetKind() == "VirtualMachine"
	})
	if i < 0 {
		return nil, nil, errors.New("no VM object found in the template")
	}
	vm := &virtv1.VirtualMachine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[i].Object, vm, true); err != nil {
		return nil, nil, fmt.Errorf("reading the template's VirtualMachine: %w", err)
	}
	vm.Namespace = call.NamespaceOr("vmNamespace", vm.Namespace)
	if vm.Spec.Template == nil {
		return nil, nil, errors.New("the template's VirtualMachine has no spec.template")
	}
	if vm.Name != "" {
		setLabel(&vm.Spec.Template.ObjectMeta.Labels, names.LabelVMName, vm.Name)
	}
	if call.TaskRunUID != "" {
		setLabel(&vm.Labels, labelRun, string(call.TaskRunUID))
	}
	if err := setStrategy(call, vm); err != nil {
		return nil, nil, err
	}
	own, err := call.Bool("setOwnerReference")
	if err != nil {
		return nil, nil, err
	}
	if own {
		owner, err := call.Owner()
		if err != nil {
			return nil, nil, err
		}
		vm.OwnerReferences = append(vm.OwnerReferences, owner)
	}
	return vm, slices.Delete(objects, i, i+1), nil
}

func setLabel(labels *map[string]string, key, value string) {
	if *labels == nil {
		*labels = map[string]string{}
	}
	(*labels)[key] = value
}

// setStrategy sets how the VM runs: as runStrategy says, or Always for startVM.
func setStrategy(call *declare.Call, vm *virtv1.VirtualMachine) error {
	start, err := call.Bool("startVM")
	if err != nil {
		return err
	}
	strategy := virtv1.VirtualMachineRunStrategy(call.String("runStrategy"))
	if strategy == "" && start {
		strategy = virtv1.RunStrategyAlways
	}
	if strategy != "" {
		vm.Spec.Running, vm.Spec.RunStrategy = nil, &strategy
	}
	return nil
}

// create makes the objects, or takes up the VM that an earlier try of this TaskRun made.
func create(ctx context.Context, call *declare.Call, vm *virtv1.VirtualMachine, others []*unstructured.Unstructured) (*virtv1.VirtualMachine, error) {
	if call.TaskRunUID != "" {
		var made virtv1.VirtualMachineList
		if err := call.Client.List(ctx, &made, client.InNamespace(vm.Namespace), client.MatchingLabels{labelRun: string(call.TaskRunUID)}); err != nil {
			return nil, fmt.Errorf("looking for the VirtualMachine of an earlier try: %w", err)
		}
		if len(made.Items) > 0 {
			call.Log.Info("an earlier try made the VirtualMachine", "name", made.Items[0].Name)
			return &made.Items[0], nil
		}
	}
	for _, object := range others {
		if object.GetNamespace() == "" {
			object.SetNamespace(vm.Namespace)
		}
		call.Log.Info("creating "+object.GetKind(), "name", object.GetName())
		if err := call.Client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("creating %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
		}
	}
	call.Log.Info("creating VirtualMachine", "name", vm.Namespace+"/"+vm.Name)
	if err := call.Client.Create(ctx, vm); err != nil {
		return nil, fmt.Errorf("creating VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	return vm, nil
}

// show prints the VM as YAML, as the field's task does, without its cloud-init data, which may hold passwords.
func show(call *declare.Call, vm *virtv1.VirtualMachine) error {
	shown := vm.DeepCopy()
	shown.ManagedFields = nil
	for i := range shown.Spec.Template.Spec.Volumes {
		volume := &shown.Spec.Template.Spec.Volumes[i]
		if volume.CloudInitNoCloud != nil {
			volume.CloudInitNoCloud = &virtv1.CloudInitNoCloudSource{}
		}
		if volume.CloudInitConfigDrive != nil {
			volume.CloudInitConfigDrive = &virtv1.CloudInitConfigDriveSource{}
		}
	}
	shown.APIVersion, shown.Kind = virtv1.SchemeGroupVersion.String(), "VirtualMachine"
	data, err := yaml.Marshal(shown)
	if err != nil {
		return fmt.Errorf("printing the VirtualMachine: %w", err)
	}
	if _, err := call.Out.Write(data); err != nil {
		return fmt.Errorf("printing the VirtualMachine: %w", err)
	}
	return nil
}
