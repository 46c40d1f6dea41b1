//go:build e2e

package tasks

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	templatev1 "github.com/openshift/api/template/v1"
	"github.com/tektoncd/pipeline/pkg/apis/pipeline/pod"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"knative.dev/pkg/apis"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// fieldTask is a Task of kubevirt-tekton-tasks as a user has it: its program, the variables and flags by
// which it takes its parameters, and the rights of its Role. Nothing in it is Slipway's but the image.
type fieldTask struct {
	image   string
	command string
	// program is what COMMAND says for those that start with entrypoint.
	program string
	// env are the string parameters by their variables, args the step's arguments, arrays the array parameters.
	env    map[string]string
	args   []string
	arrays []string
	// results are what the Task declares.
	results []string
	rules   []rbacv1.PolicyRule
	secret  string
	disk    string
}

func rule(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

var (
	machines  = []string{"virtualmachines", "virtualmachineinstances"}
	startStop = rule("subresources.kubevirt.io", []string{"virtualmachines/start", "virtualmachines/stop", "virtualmachines/restart"}, "update")
	named     = []string{"name", "namespace"}
)

// fieldTasks are the Tasks, with the rights that their pages ask for.
var fieldTasks = map[string]fieldTask{
	"create-vm-from-manifest": {
		command: "create-vm", args: []string{"--output=yaml"}, results: named,
		env:   map[string]string{"VM_MANIFEST": "manifest", "VM_NAMESPACE": "namespace", "VIRTCTL": "virtctl", "START_VM": "startVM", "RUN_STRATEGY": "runStrategy", "SET_OWNER_REFERENCE": "setOwnerReference"},
		rules: []rbacv1.PolicyRule{rule("kubevirt.io", machines, "get", "list", "watch", "create", "update"), rule("", []string{"pods"}, "get")},
	},
	"create-vm-from-template": {
		command: "create-vm", args: []string{"--output=yaml", "--template-params", "$(params.templateParams)"}, arrays: []string{"templateParams"}, results: named,
		env: map[string]string{"TEMPLATE_NAME": "templateName", "TEMPLATE_NAMESPACE": "templateNamespace", "VM_NAMESPACE": "vmNamespace", "START_VM": "startVM", "RUN_STRATEGY": "runStrategy"},
		rules: []rbacv1.PolicyRule{
			rule("kubevirt.io", machines, "get", "list", "watch", "create", "update"), rule("template.openshift.io", []string{"templates"}, "get", "list", "watch"),
		},
	},
	"copy-template": {
		command: "copy-template", args: []string{"--output=yaml"}, results: named,
		env:   map[string]string{"SOURCE_TEMPLATE_NAME": "sourceTemplateName", "SOURCE_TEMPLATE_NAMESPACE": "sourceTemplateNamespace", "TARGET_TEMPLATE_NAME": "targetTemplateName", "TARGET_TEMPLATE_NAMESPACE": "targetTemplateNamespace", "ALLOW_REPLACE": "allowReplace"},
		rules: []rbacv1.PolicyRule{rule("template.openshift.io", []string{"templates"}, "get", "list", "watch", "create", "update")},
	},
	"modify-vm-template": {
		command: "modify-vm-template", args: []string{"--output=yaml", "--vm-labels", "$(params.vmLabels)", "--disks", "$(params.disks)"}, arrays: []string{"vmLabels", "disks"}, results: named,
		env:   map[string]string{"TEMPLATE_NAME": "templateName", "TEMPLATE_NAMESPACE": "templateNamespace", "CPU_CORES": "cpuCores", "MEMORY": "memory", "DELETE_DISKS": "deleteDisks"},
		rules: []rbacv1.PolicyRule{rule("template.openshift.io", []string{"templates"}, "get", "list", "patch", "delete")},
	},
	"modify-data-object": {
		command: "modify-data-object", args: []string{"--output=yaml"}, results: named,
		env: map[string]string{
			"DATA_OBJECT_MANIFEST": "manifest", "DATA_OBJECT_NAMESPACE": "namespace", "WAIT_FOR_SUCCESS": "waitForSuccess", "ALLOW_REPLACE": "allowReplace", "TIMEOUT": "timeout",
			"DELETE_OBJECT": "deleteObject", "DELETE_OBJECT_KIND": "deleteObjectKind", "DELETE_OBJECT_NAME": "deleteObjectName", "SET_OWNER_REFERENCE": "setOwnerReference",
		},
		rules: []rbacv1.PolicyRule{
			rule("cdi.kubevirt.io", []string{"datavolumes", "datasources"}, "get", "create", "delete"), rule("", []string{"persistentvolumeclaims"}, "get", "delete"), rule("", []string{"pods"}, "create"),
		},
	},
	"execute-in-vm": {
		command: "entrypoint", program: "execute-in-vm", args: []string{"--", "$(params.command)", "$(params.args)"}, arrays: []string{"command", "args"}, secret: "secretName",
		env:   map[string]string{"VM_NAME": "vmName", "VM_NAMESPACE": "vmNamespace", "EXECUTE_SCRIPT": "script", "CONNECTION_SECRET_NAME": "secretName"},
		rules: []rbacv1.PolicyRule{rule("kubevirt.io", machines, "get", "list", "watch"), startStop},
	},
	"cleanup-vm": {
		command: "entrypoint", program: "execute-in-vm", arrays: []string{"command", "args"}, secret: "secretName",
		args:  []string{"--stop", "$(params.stop)", "--delete", "$(params.delete)", "--timeout", "$(params.timeout)", "--", "$(params.command)", "$(params.args)"},
		env:   map[string]string{"VM_NAME": "vmName", "VM_NAMESPACE": "vmNamespace", "EXECUTE_SCRIPT": "script", "CONNECTION_SECRET_NAME": "secretName"},
		rules: []rbacv1.PolicyRule{rule("kubevirt.io", machines, "get", "list", "watch", "delete"), startStop},
	},
	"generate-ssh-keys": {
		command: "entrypoint", program: "generate-ssh-keys", args: []string{"--", "$(params.privateKeyConnectionOptions)"}, arrays: []string{"privateKeyConnectionOptions"},
		results: []string{"publicKeySecretName", "publicKeySecretNamespace", "privateKeySecretName", "privateKeySecretNamespace"},
		env:     map[string]string{"PUBLIC_KEY_SECRET_NAME": "publicKeySecretName", "PRIVATE_KEY_SECRET_NAME": "privateKeySecretName", "ADDITIONAL_SSH_KEYGEN_OPTIONS": "additionalSSHKeygenOptions"},
		rules:   []rbacv1.PolicyRule{rule("", []string{"secrets"}, "get", "list", "create", "patch")},
	},
	"wait-for-vmi-status": {
		command: "entrypoint", program: "wait-for-vmi-status",
		env:   map[string]string{"VMI_NAME": "vmiName", "VMI_NAMESPACE": "vmiNamespace", "SUCCESS_CONDITION": "successCondition", "FAILURE_CONDITION": "failureCondition"},
		rules: []rbacv1.PolicyRule{rule("kubevirt.io", []string{"virtualmachineinstances"}, "get", "list", "watch")},
	},
	// Its resources, one of each device of a node, are left out: the test's node may have no KVM.
	"disk-virt-customize": {
		image: "slipway-guestfs", command: "entrypoint", program: "disk-virt-customize", args: []string{"--verbose", "$(params.verbose)"}, disk: "pvc",
		env: map[string]string{"VIRT_COMMANDS": "virtCommands", "ADDITIONAL_VIRT_OPTIONS": "additionalVirtOptions"},
	},
}

// params are the Task's parameters: those of its variables and arguments.
func (f fieldTask) params() tektonv1.ParamSpecs {
	var specs tektonv1.ParamSpecs
	texts := slices.Sorted(maps.Values(f.env))
	for _, more := range []string{f.disk, f.secret} {
		if more != "" {
			texts = append(texts, more)
		}
	}
	for _, flag := range []string{"stop", "delete", "timeout", "verbose"} {
		if slices.Contains(f.args, "$(params."+flag+")") {
			texts = append(texts, flag)
		}
	}
	defaults := map[string]string{"timeout": "30m", "stop": "true", "delete": "false", "verbose": "false", "secretName": "__empty__"}
	slices.Sort(texts)
	for _, name := range slices.Compact(texts) {
		specs = append(specs, tektonv1.ParamSpec{Name: name, Type: tektonv1.ParamTypeString, Default: tektonv1.NewStructuredValues(defaults[name])})
	}
	for _, name := range f.arrays {
		none := &tektonv1.ParamValue{Type: tektonv1.ParamTypeArray, ArrayVal: []string{}}
		specs = append(specs, tektonv1.ParamSpec{Name: name, Type: tektonv1.ParamTypeArray, Default: none})
	}
	return specs
}

// spec is the Task's own.
func (f fieldTask) spec(image string) *tektonv1.TaskSpec {
	fromPod := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	step := tektonv1.Step{
		Name: "run", Image: image, Command: []string{f.command}, Args: f.args,
		Env: []corev1.EnvVar{{Name: "POD_NAMESPACE", ValueFrom: fromPod("metadata.namespace")}, {Name: "POD_NAME", ValueFrom: fromPod("metadata.name")}},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	if f.program != "" {
		step.Env = append(step.Env, corev1.EnvVar{Name: "COMMAND", Value: f.program})
	}
	for _, name := range slices.Sorted(maps.Keys(f.env)) {
		step.Env = append(step.Env, corev1.EnvVar{Name: name, Value: "$(params." + f.env[name] + ")"})
	}
	spec := &tektonv1.TaskSpec{Params: f.params()}
	if f.secret != "" {
		step.VolumeMounts = append(step.VolumeMounts, corev1.VolumeMount{Name: "connectionsecret", MountPath: "/data/connectionsecret/", ReadOnly: true})
		source := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "$(params." + f.secret + ")", Optional: new(true)}}
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "connectionsecret", VolumeSource: source})
	}
	if f.disk != "" {
		step.VolumeMounts = append(step.VolumeMounts, corev1.VolumeMount{Name: "targetpvc", MountPath: "/mnt/targetpvc/"})
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "$(params." + f.disk + ")"}}
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "targetpvc", VolumeSource: source})
	}
	for _, name := range f.results {
		spec.Results = append(spec.Results, tektonv1.TaskResult{Name: name, Type: tektonv1.ResultsTypeString})
	}
	spec.Steps = []tektonv1.Step{step}
	return spec
}

// dropIn makes the Task in the namespace, with its ServiceAccount, which has the rights of its page and no more.
func dropIn(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	f := fieldTasks[name]
	images, err := suite.World.Images()
	Expect(err).NotTo(HaveOccurred())
	image := "slipway"
	if f.image != "" {
		image = f.image
	}
	object := metav1.ObjectMeta{Namespace: namespace, Name: name}
	account := metav1.ObjectMeta{Namespace: namespace, Name: name + "-task"}
	suite.Create(ctx,
		&tektonv1.Task{ObjectMeta: object, Spec: *f.spec(images[image].Ref)},
		&corev1.ServiceAccount{ObjectMeta: account},
		&rbacv1.Role{ObjectMeta: account, Rules: f.rules},
		&rbacv1.RoleBinding{
			ObjectMeta: account, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}},
		},
	)
	for _, rule := range f.rules {
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		suite.May(ctx, namespace, account.Name, authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
		})
	}
}

// runDropIn makes the Task, runs it with the parameters and returns its run, what it printed and its results.
func runDropIn(ctx context.Context, namespace, task string, params map[string]any) (run *tektonv1.TaskRun, printed string, results map[string]string) {
	GinkgoHelper()
	run = &tektonv1.TaskRun{
		ObjectMeta: metav1.ObjectMeta{GenerateName: task + "-", Namespace: namespace},
		Spec:       tektonv1.TaskRunSpec{TaskRef: &tektonv1.TaskRef{Kind: tektonv1.NamespacedTaskKind, Name: task}, ServiceAccountName: task + "-task"},
	}
	if fieldTasks[task].disk != "" { // as their pages ask
		run.Spec.PodTemplate = &pod.PodTemplate{SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](107), FSGroup: ptr.To[int64](107)}}
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value := tektonv1.ParamValue{Type: tektonv1.ParamTypeArray}
		switch v := params[name].(type) {
		case string:
			value = *tektonv1.NewStructuredValues(v)
		case []string:
			value.ArrayVal = v
		}
		run.Spec.Params = append(run.Spec.Params, tektonv1.Param{Name: name, Value: value})
	}
	suite.Create(ctx, run)
	err := suite.World.Await(ctx, GinkgoWriter, run, suite.BoundTask, func(obj client.Object) (string, bool, error) {
		run = obj.(*tektonv1.TaskRun)
		condition := run.Status.GetCondition(apis.ConditionSucceeded)
		if condition == nil {
			return "created", false, nil
		}
		return condition.Reason + ": " + condition.Message, !condition.IsUnknown(), nil
	})
	Expect(err).NotTo(HaveOccurred())
	results = map[string]string{}
	for _, result := range run.Status.Results {
		results[result.Name] = result.Value.StringVal
	}
	return run, suite.TaskLog(ctx, run), results
}

// does runs the Task, which must succeed, and returns its results and what it printed.
func does(ctx context.Context, namespace, task string, params map[string]any) (results map[string]string, printed string) {
	GinkgoHelper()
	run, printed, results := runDropIn(ctx, namespace, task, params)
	Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsTrue()).To(BeTrue(), task+" printed:\n"+printed)
	return results, printed
}

var _ = Describe("a Task of kubevirt-tekton-tasks with another image", func() {
	It("makes keys, a disk and a VM, runs in it, waits for it and cleans up", func(ctx context.Context) {
		at := suite.Namespace(ctx)
		for _, task := range []string{"generate-ssh-keys", "modify-data-object", "create-vm-from-manifest", "execute-in-vm", "wait-for-vmi-status", "cleanup-vm"} {
			dropIn(ctx, at, task)
		}
		keys, _ := does(ctx, at, "generate-ssh-keys", map[string]any{
			"additionalSSHKeygenOptions": "-t ed25519", "privateKeySecretName": "keys", "publicKeySecretName": "public",
			"privateKeyConnectionOptions": []string{"user:root", "disable-strict-host-key-checking:true", "additional-ssh-options:-p", "22"},
		})
		Expect(keys).To(And(HaveKeyWithValue("privateKeySecretName", "keys"), HaveKeyWithValue("publicKeySecretNamespace", at)))
		var public corev1.Secret
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: at, Name: "public"}, &public)).To(Succeed())
		Expect(public.Data).To(HaveLen(1))
		key := ""
		for _, data := range public.Data {
			key = string(data)
		}

		By("waiting for a disk with a Role that may not watch")
		made, printed := does(ctx, at, "modify-data-object", map[string]any{
			"waitForSuccess": "true", "timeout": "5m",
			"manifest": "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata:\n  generateName: blank-\n" +
				"  annotations: {cdi.kubevirt.io/storage.bind.immediate.requested: \"true\"}\nspec:\n  source: {blank: {}}\n  storage: {resources: {requests: {storage: 16Mi}}}\n",
		})
		Expect(printed).To(ContainSubstring("may not watch"))
		suite.DataVolume(ctx, at, made["name"], cdiv1.Succeeded)
		does(ctx, at, "modify-data-object", map[string]any{"deleteObject": "true", "deleteObjectKind": "DataVolume", "deleteObjectName": made["name"]})

		By("making a VM that its run owns")
		vm := fixture.VM("", "dropped-in", fixture.Strategy(virtv1.RunStrategyHalted), fixture.ContainerDisk(suite.TinyImage()),
			fixture.CloudInit("#cloud-config\nssh_authorized_keys:\n  - "+key+"\n"))
		run, printed, _ := runDropIn(ctx, at, "create-vm-from-manifest", map[string]any{"manifest": manifest("VirtualMachine", vm), "setOwnerReference": "true"})
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsTrue()).To(BeTrue(), printed)
		Expect(printed).To(ContainSubstring("apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n"))
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: at, Name: vm.Name}, vm)).To(Succeed())
		Expect(vm.OwnerReferences).To(HaveLen(1))
		Expect(vm.OwnerReferences[0].UID).To(Equal(run.UID))

		By("saying which right is missing to start it, and starting it with that; the guest's shell splits the command")
		_, printed, _ = runDropIn(ctx, at, "execute-in-vm", map[string]any{"vmName": vm.Name, "secretName": "keys", "script": "true"})
		Expect(printed).To(ContainSubstring("give the task's Role the verb patch on virtualmachines.kubevirt.io"))
		for _, task := range []string{"execute-in-vm", "cleanup-vm"} {
			var role rbacv1.Role
			Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: at, Name: task + "-task"}, &role)).To(Succeed())
			role.Rules = append(role.Rules, rule("kubevirt.io", []string{"virtualmachines"}, "patch"))
			Expect(suite.World.Client.Update(ctx, &role)).To(Succeed())
			suite.May(ctx, at, task+"-task", authorizationv1.ResourceAttributes{Namespace: at, Verb: "patch", Group: "kubevirt.io", Resource: "virtualmachines"})
		}
		_, printed = does(ctx, at, "execute-in-vm", map[string]any{"vmName": vm.Name, "secretName": "keys", "command": []string{"echo one &&"}, "args": []string{"echo", "two"}})
		Expect(printed).To(ContainSubstring("one\ntwo"))
		does(ctx, at, "wait-for-vmi-status", map[string]any{"vmiName": vm.Name, "successCondition": "status.phase == Running", "failureCondition": "status.phase in (Failed, Unknown)"})

		By("stopping it, then deleting it")
		_, printed = does(ctx, at, "cleanup-vm", map[string]any{"vmName": vm.Name, "secretName": "keys", "script": "echo bye", "timeout": "5m"})
		Expect(printed).To(ContainSubstring("bye"))
		suite.VMStatus(ctx, at, vm.Name, virtv1.VirtualMachineStatusStopped)
		does(ctx, at, "cleanup-vm", map[string]any{"vmName": vm.Name, "stop": "false", "delete": "true"})
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)).NotTo(Succeed())
	}, SpecTimeout(30*time.Minute))

	It("works on templates with Roles that know patch alone or update alone", func(ctx context.Context) {
		at := suite.Namespace(ctx)
		for _, task := range []string{"copy-template", "modify-vm-template", "create-vm-from-template"} {
			dropIn(ctx, at, task)
		}
		giveTemplate(ctx, at, "source")
		copied, _ := does(ctx, at, "copy-template", map[string]any{"sourceTemplateName": "source", "targetTemplateName": "target"})
		Expect(copied).To(HaveKeyWithValue("name", "target"))
		does(ctx, at, "modify-vm-template", map[string]any{"templateName": "target", "cpuCores": "2", "memory": "96Mi", "vmLabels": []string{"team:shop"}})
		made, _ := does(ctx, at, "create-vm-from-template", map[string]any{"templateName": "target", "templateParams": []string{"NAME:of-template", "TEXT:two", "words"}})
		vm := &virtv1.VirtualMachine{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: made["namespace"], Name: "of-template"}, vm)).To(Succeed())
		Expect(vm.Spec.Template.Spec.Domain.CPU.Cores).To(BeEquivalentTo(2))
		Expect(vm.Labels).To(HaveKeyWithValue("team", "shop"))
		Expect(vm.Annotations).To(HaveKeyWithValue("text", "two words"))
	}, SpecTimeout(25*time.Minute))

	It("reaches the tool's image and says what is wrong with them", func(ctx context.Context) {
		at := suite.Namespace(ctx)
		dropIn(ctx, at, "disk-virt-customize")
		dv := fixture.DataVolume(at, "disk", "16Mi")
		suite.Create(ctx, dv)
		suite.DataVolume(ctx, at, dv.Name, cdiv1.Succeeded)
		for options, want := range map[string]string{
			"":  "virt-commands option or VIRT_COMMANDS env variable is required",
			"'": "additionalVirtOptions: ",
		} {
			params := map[string]any{"pvc": dv.Name, "additionalVirtOptions": options}
			if options != "" {
				params["virtCommands"] = "hostname x"
			}
			run, printed, _ := runDropIn(ctx, at, "disk-virt-customize", params)
			Expect(run.Status.Steps).To(HaveLen(1), printed)
			Expect(run.Status.Steps[0].Terminated).NotTo(BeNil(), printed)
			Expect(run.Status.Steps[0].Terminated.ExitCode).To(BeEquivalentTo(255))
			Expect(printed).To(ContainSubstring(want))
		}
	}, SpecTimeout(25*time.Minute))
})

// manifest is the object as a user writes it.
func manifest(kind string, object any) string {
	GinkgoHelper()
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	Expect(err).NotTo(HaveOccurred())
	delete(tree, "status")
	tree["apiVersion"], tree["kind"] = virtv1.GroupVersion.String(), kind
	text, err := yaml.Marshal(tree)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// giveTemplate makes a Template of a VM with two parameters.
func giveTemplate(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	vm := fixture.VM("", "${NAME}", fixture.Strategy(virtv1.RunStrategyHalted))
	vm.Annotations = map[string]string{"text": "${TEXT}"}
	suite.Create(ctx, &templatev1.Template{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Objects:    []runtime.RawExtension{{Raw: []byte(asJSON(manifest("VirtualMachine", vm)))}},
		Parameters: []templatev1.Parameter{{Name: "NAME", Required: true}, {Name: "TEXT", Required: true}},
	})
}

func asJSON(text string) string {
	GinkgoHelper()
	data, err := yaml.YAMLToJSON([]byte(text))
	Expect(err).NotTo(HaveOccurred())
	return string(data)
}
