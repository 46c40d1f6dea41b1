// Package newvm creates a VirtualMachine for the tasks that make one: with the parameters
// that they share, once for a TaskRun, started if asked for, and shown to the user.
package newvm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/once"
)

// Exit codes that clients know.
const (
	CodeGeneric       = 1
	CodeUsage         = 2
	codeVolumeMissing = 3
	codeCreate        = 4
	codeOwnVolume     = 5
	codeResults       = 6
	codeStart         = 7
)

// Codes is the sentence on exit codes for the tasks' pages.
const Codes = "2 a parameter is wrong, 3 a volume does not exist, 4 the VirtualMachine could not be created, " +
	"5 a volume could not be given to it, 6 results, 7 it could not be started."

// Details is what the tasks' pages say of the parts that they share.
const Details = `
A retry of the same TaskRun takes up what its earlier try made, also a generated name; another VirtualMachine of the name is an error (already exists).

startVM makes a VirtualMachine whose run strategy is Halted one that runs Always, in the same write. One whose strategy is Manual is started through its
start subresource. With setOwnerReference the run owns what the task makes: not its pod, which may be deleted early, but the run
itself, a TaskRun, which goes with its PipelineRun. What is made in another namespace than the run's cannot be owned.

The VirtualMachine is printed as YAML, without its cloud-init data, which may hold passwords.`

// Usage gives err the exit code of wrong parameters, also where err has another.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &declare.Exit{Code: CodeUsage, Err: err}
}

// Params are the parameters that the tasks share.
func Params() []declare.Param {
	volumes := func(name, what, more string) declare.Param {
		return declare.Param{Name: name, Array: true, Description: what + " to add as volumes and disks, each as NAME or VOLUME:NAME; a volume of that name is replaced." + more}
	}
	return []declare.Param{
		{Name: "startVM", Description: "Start the VirtualMachine, whatever its manifest says. Any value but true counts as false.", Kind: "boolean"},
		{Name: "runStrategy", Description: "Run strategy of the VirtualMachine, instead of its manifest's."},
		{Name: "setOwnerReference", Description: "Make the run own the VirtualMachine, so that it goes with the run.", Default: "false", Kind: "boolean"},
		volumes("dataVolumes", "DataVolumes", ""),
		volumes("ownDataVolumes", "DataVolumes", " The VirtualMachine owns them: they go with it."),
		volumes("persistentVolumeClaims", "PersistentVolumeClaims", ""),
		volumes("ownPersistentVolumeClaims", "PersistentVolumeClaims", " The VirtualMachine owns them: they go with it."),
	}
}

// Results are the results of the tasks.
func Results() []declare.Result {
	return []declare.Result{
		{Name: "name", Description: "Name of the VirtualMachine."},
		{Name: "namespace", Description: "Namespace of the VirtualMachine."},
	}
}

// Rules are the rights that Create needs.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines"}, Verbs: []string{"get", "create"}},
		{APIGroups: []string{startGroup}, Resources: []string{"virtualmachines/start"}, Verbs: []string{"update"}},
		{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes"}, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "patch"}},
	}
}

// options are the parameters that the tasks share, checked.
type options struct {
	start, own bool
	strategy   virtv1.VirtualMachineRunStrategy
	volumes    []volume
}

func readOptions(call *declare.Call) (options, error) {
	o := options{strategy: virtv1.VirtualMachineRunStrategy(strings.TrimSpace(call.String("runStrategy")))}
	o.start = started(call)
	var errs [2]error
	o.own, errs[0] = call.Bool("setOwnerReference")
	o.volumes, errs[1] = readVolumes(call)
	return o, errors.Join(errs[:]...)
}

// started says whether the VM shall be started. What is no boolean is "false" as in the field's
// tasks, whose clients count on it, but it is told.
func started(call *declare.Call) bool {
	start, err := call.Bool("startVM")
	if err != nil {
		call.Log.Warn("the VirtualMachine is not started: " + err.Error())
	}
	return start
}

// Create makes vm and the objects beside it, as the shared parameters ask, writes the results,
// prints the VM and starts it. vm and the objects have their namespaces.
func Create(ctx context.Context, call *declare.Call, vm *virtv1.VirtualMachine, beside []*unstructured.Unstructured) error {
	o, err := readOptions(call)
	if err != nil {
		return Usage(err)
	}
	if err := prepare(vm, o); err != nil {
		return Usage(err)
	}
	if err := own(call, o, vm, beside); err != nil {
		return Usage(err)
	}
	volumes, err := find(ctx, call, vm.Namespace, o.volumes)
	if err != nil {
		return declare.Coded(codeVolumeMissing, err)
	}
	if err := create(ctx, call, vm, beside); err != nil {
		return declare.Coded(codeCreate, err)
	}
	if err := give(ctx, call, vm, volumes); err != nil {
		return declare.Coded(codeOwnVolume, err)
	}
	if err := errors.Join(call.Result("name", vm.Name), call.Result("namespace", vm.Namespace), show(call, vm)); err != nil {
		return declare.Coded(codeResults, err)
	}
	if !o.start {
		return nil
	}
	return declare.Coded(codeStart, start(ctx, call, vm))
}

// prepare makes vm as the parameters ask.
func prepare(vm *virtv1.VirtualMachine, o options) error {
	if vm.Name == "" && vm.GenerateName == "" {
		return errors.New("the VirtualMachine has neither metadata.name nor metadata.generateName; give it one")
	}
	if vm.Spec.Template == nil {
		return errors.New("the VirtualMachine has no spec.template; it says what runs")
	}
	if o.strategy != "" {
		vm.Spec.Running, vm.Spec.RunStrategy = nil, &o.strategy
	}
	if o.start && halted(vm) {
		always := virtv1.RunStrategyAlways
		vm.Spec.Running, vm.Spec.RunStrategy = nil, &always
	}
	for _, v := range o.volumes {
		v.addTo(&vm.Spec.Template.Spec)
	}
	return nil
}

// halted says whether vm would not run at all.
func halted(vm *virtv1.VirtualMachine) bool {
	if vm.Spec.RunStrategy != nil {
		return *vm.Spec.RunStrategy == virtv1.RunStrategyHalted
	}
	return vm.Spec.Running == nil || !*vm.Spec.Running
}

// own makes the run own what is about to be made, if it shall.
func own(call *declare.Call, o options, vm *virtv1.VirtualMachine, beside []*unstructured.Unstructured) error {
	if !o.own {
		return nil
	}
	owner, err := call.OwnerIn(vm.Namespace)
	if err != nil {
		return err
	}
	vm.OwnerReferences = append(vm.OwnerReferences, owner)
	for _, object := range beside {
		owner, err := call.OwnerIn(object.GetNamespace())
		if err != nil {
			return err
		}
		object.SetOwnerReferences(append(object.GetOwnerReferences(), owner))
	}
	return nil
}

func create(ctx context.Context, call *declare.Call, vm *virtv1.VirtualMachine, beside []*unstructured.Unstructured) error {
	for _, object := range beside {
		if _, err := once.Create(ctx, call, object, nil); err != nil {
			return err
		}
	}
	_, err := once.Create(ctx, call, vm, func(name string) {
		labels := &vm.Spec.Template.ObjectMeta.Labels
		if *labels == nil {
			*labels = map[string]string{}
		}
		(*labels)[names.LabelVMName] = name // by which Services find the pod of the VM
	})
	return err
}

// show prints the VM as YAML, as the field's task does, without its cloud-init data.
func show(call *declare.Call, vm *virtv1.VirtualMachine) error {
	shown := vm.DeepCopy()
	shown.ManagedFields = nil
	for i := range shown.Spec.Template.Spec.Volumes {
		volume := &shown.Spec.Template.Spec.Volumes[i]
		if c := volume.CloudInitNoCloud; c != nil {
			c.UserData, c.UserDataBase64, c.NetworkData, c.NetworkDataBase64 = "", "", "", ""
		}
		if c := volume.CloudInitConfigDrive; c != nil {
			c.UserData, c.UserDataBase64, c.NetworkData, c.NetworkDataBase64 = "", "", "", ""
		}
	}
	shown.APIVersion, shown.Kind = virtv1.SchemeGroupVersion.String(), virtv1.VirtualMachineGroupVersionKind.Kind
	data, err := yaml.Marshal(shown)
	if err == nil {
		_, err = call.Out.Write(data)
	}
	if err != nil {
		return fmt.Errorf("printing the VirtualMachine: %w", err)
	}
	return nil
}
