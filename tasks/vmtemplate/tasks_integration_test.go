//go:build integration

package vmtemplate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	templatev1 "github.com/openshift/api/template/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	copytemplate "github.com/slipway-vm/slipway/tasks/copy-template"
	createvmfrommanifest "github.com/slipway-vm/slipway/tasks/create-vm-from-manifest"
	createvmfromtemplate "github.com/slipway-vm/slipway/tasks/create-vm-from-template"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/declare/rehearsal"
	modifyvmtemplate "github.com/slipway-vm/slipway/tasks/modify-vm-template"
	"github.com/slipway-vm/slipway/tasks/once"
)

const crds = "../../controllers/hyperconverged/components/crds"

const startUnused = "a VirtualMachine of strategy Manual needs virt-api, which this stage has not; newvm tests the call"

var fromManifest, fromTemplate, copying, modifying = createvmfrommanifest.Task(), createvmfromtemplate.Task(), copytemplate.Task(), modifyvmtemplate.Task()

// The tests run in order: the last take definitions away.
func TestTasks(t *testing.T) {
	stage := rehearsal.Open(t, crds)
	for _, task := range []*declare.Task{fromManifest, fromTemplate} {
		stage.Unused(t, task, "update virtualmachines/start", startUnused)
	}
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *rehearsal.Stage)
	}{
		{"create-vm-from-manifest makes a VM once, and no other's its own", makesFromManifest},
		{"its generated name is the same in every try", generatesNames},
		{"volumes are found, added and given to the VM", givesVolumes},
		{"a pod that is killed leaves nothing doubled", survivesKills},
		{"the run owns what it makes, in its own namespace", owns},
		{"create-vm-from-template fills in a Template", fillsIn},
		{"copy-template copies, once or anew", copies},
		{"modify-vm-template changes a template, whoever writes it too", modifies},
		{"a VirtualMachineTemplate serves all three", servesVMT},
		{"v1alpha1 alone is enough", servesAlpha},
		{"without any definition the tasks say so", servesNothing},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, stage) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func meta(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

// ends fails the test unless the run ended with the code and the words.
func ends(t *testing.T, o rehearsal.Outcome, code int, words string) {
	t.Helper()
	if o.Err == nil || o.Code != code || !strings.Contains(o.Err.Error(), words) {
		t.Errorf("it ended with %d, %v; want %d and %q", o.Code, o.Err, code, words)
	}
}

func succeeds(t *testing.T, o rehearsal.Outcome) rehearsal.Outcome {
	t.Helper()
	if o.Err != nil {
		t.Fatalf("it failed with %d: %v; it logged:\n%s", o.Code, o.Err, o.Log)
	}
	return o
}

func get[T client.Object](t *testing.T, s *rehearsal.Stage, ns, name string, into T) T {
	t.Helper()
	must(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, into))
	return into
}

func vms(t *testing.T, s *rehearsal.Stage, ns string) []virtv1.VirtualMachine {
	t.Helper()
	var list virtv1.VirtualMachineList
	must(t, s.Client.List(t.Context(), &list, client.InNamespace(ns)))
	return list.Items
}

const manifest = `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {%s}
spec:
  runStrategy: Halted
  template:
    spec:
      domain: {}
      volumes: [{name: cloud, cloudInitNoCloud: {userData: hush}}]
`

func named(name string) string { return fmt.Sprintf(manifest, "name: "+name) }

func makesFromManifest(t *testing.T, s *rehearsal.Stage) {
	ns := s.Namespace(t, fromManifest)
	run := func(uid string, params map[string]any) rehearsal.Outcome {
		return s.Run(t, rehearsal.Run{Task: fromManifest, Namespace: ns, Name: "run-" + uid, UID: uid, Params: params})
	}
	params := map[string]any{"manifest": named("vm"), "startVM": "true"}
	o := succeeds(t, run("u1", params))
	if o.Results["name"] != "vm" || o.Results["namespace"] != ns || !strings.HasPrefix(o.Out, "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n") || strings.Contains(o.Out+o.Log, "hush") {
		t.Errorf("results %v, printed:\n%s\nlogged:\n%s", o.Results, o.Out, o.Log)
	}
	vm := get(t, s, ns, "vm", &virtv1.VirtualMachine{})
	if len(vm.Labels) != 0 {
		t.Errorf("the VM has labels that its manifest has not: %v", vm.Labels)
	}
	if *vm.Spec.RunStrategy != virtv1.RunStrategyAlways || vm.Spec.Template.ObjectMeta.Labels["vm.kubevirt.io/name"] != "vm" || vm.Spec.Template.Spec.Volumes[0].CloudInitNoCloud.UserData != "hush" {
		t.Errorf("the VM is %+v", vm.Spec)
	}

	if o := succeeds(t, run("u1", params)); o.Results["name"] != "vm" || !strings.Contains(o.Log, "an earlier try made the VirtualMachine") {
		t.Errorf("a retry has results %v and logged:\n%s", o.Results, o.Log)
	}
	ends(t, run("u2", params), 4, `virtualmachines.kubevirt.io "vm" already exists`)
	if again := get(t, s, ns, "vm", &virtv1.VirtualMachine{}); again.ResourceVersion != vm.ResourceVersion {
		t.Error("a retry, or another run, changed the VM")
	}

	succeeds(t, run("u3", map[string]any{"virtctl": "--name flags --run-strategy Manual --memory 1Gi --user 'me' --ssh-key 'ssh-ed25519 A me@here'", "runStrategy": "Halted"}))
	made := get(t, s, ns, "flags", &virtv1.VirtualMachine{})
	if *made.Spec.RunStrategy != virtv1.RunStrategyHalted || made.Spec.Template.Spec.Domain.Memory.Guest.String() != "1Gi" {
		t.Errorf("the VM of the flags is %+v", made.Spec)
	}
	ends(t, run("u4", nil), 2, "only one of vm-manifest or virtctl should be specified")
	ends(t, run("u4", map[string]any{"manifest": "blabla"}), 2, "could not read VM manifest: error unmarshaling")
	if o := succeeds(t, run("u5", map[string]any{"manifest": named("lenient"), "startVM": "invalid_value"})); !strings.Contains(o.Log, `startVM: \"invalid_value\" is neither`) {
		t.Errorf("it logged:\n%s", o.Log)
	}
	if vm := get(t, s, ns, "lenient", &virtv1.VirtualMachine{}); *vm.Spec.RunStrategy != virtv1.RunStrategyHalted {
		t.Errorf("it runs %s", *vm.Spec.RunStrategy)
	}
	ends(t, run("u4", map[string]any{"manifest": fmt.Sprintf(manifest, "")}), 2, "neither metadata.name nor metadata.generateName")
	ends(t, run("u4", map[string]any{"virtctl": "--colour red"}), 2, "unknown flag: --colour")
	ends(t, run("u4", map[string]any{"manifest": named("A_B")}), 4, "A_B")
}

func generatesNames(t *testing.T, s *rehearsal.Stage) {
	ns := s.Namespace(t, fromManifest)
	run := rehearsal.Run{Task: fromManifest, Namespace: ns, Name: "run", UID: "u1", Params: map[string]any{"manifest": fmt.Sprintf(manifest, "generateName: vm-")}}
	first := succeeds(t, s.Run(t, run)).Results["name"]
	again := succeeds(t, s.Run(t, run)).Results["name"]
	run.UID = "u2"
	other := succeeds(t, s.Run(t, run)).Results["name"]
	if !strings.HasPrefix(first, "vm-") || first != again || first == other || len(vms(t, s, ns)) != 2 {
		t.Errorf("names %s, %s, %s; %d VMs", first, again, other, len(vms(t, s, ns)))
	}
	if vm := get(t, s, ns, first, &virtv1.VirtualMachine{}); vm.Spec.Template.ObjectMeta.Labels["vm.kubevirt.io/name"] != first {
		t.Errorf("the instance has labels %v", vm.Spec.Template.ObjectMeta.Labels)
	}
	// A foreign VM that has the very name makes the next one be taken, also in the next try.
	must(t, s.Client.Delete(t.Context(), &virtv1.VirtualMachine{ObjectMeta: meta(ns, first)}))
	foreign := &virtv1.VirtualMachine{ObjectMeta: meta(ns, first), Spec: virtv1.VirtualMachineSpec{Template: &virtv1.VirtualMachineInstanceTemplateSpec{}}}
	must(t, s.Client.Create(t.Context(), foreign))
	run.UID = "u1"
	second := succeeds(t, s.Run(t, run)).Results["name"]
	if third := succeeds(t, s.Run(t, run)).Results["name"]; second == first || second != third {
		t.Errorf("beside a foreign %s it made %s, then %s", first, second, third)
	}
}

func claim(ns, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta(ns, name), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}}
}

func givesVolumes(t *testing.T, s *rehearsal.Stage) {
	ns := s.Namespace(t, fromManifest)
	for _, name := range []string{"pvc1", "pvc2"} {
		must(t, s.Client.Create(t.Context(), claim(ns, name)))
	}
	dv := &cdiv1.DataVolume{ObjectMeta: meta(ns, "dv1"), Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, Storage: &cdiv1.StorageSpec{}}}
	dv.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "first", UID: "first"}}
	must(t, s.Client.Create(t.Context(), dv))
	run := func(uid, name string, params map[string]any) rehearsal.Outcome {
		params["manifest"] = named(name)
		return s.Run(t, rehearsal.Run{Task: fromManifest, Namespace: ns, Name: "run", UID: uid, Params: params})
	}
	ends(t, run("u0", "vm", map[string]any{"dataVolumes": []string{"none"}, "persistentVolumeClaims": []string{"nil"}}), 3, `datavolumes.cdi.kubevirt.io "none" not found`)
	if len(vms(t, s, ns)) != 0 {
		t.Error("a VM was made though its volumes are missing")
	}
	params := func() map[string]any {
		return map[string]any{"ownDataVolumes": []string{"root:dv1"}, "persistentVolumeClaims": []string{"pvc1"}, "ownPersistentVolumeClaims": []string{"pvc2"}}
	}
	for _, name := range []string{"vm", "vm2"} { // a second VM takes nothing from the first
		succeeds(t, run(name, name, params()))
		succeeds(t, run(name, name, params()))
	}
	owners := func(o client.Object) string {
		var all []string
		for _, ref := range o.GetOwnerReferences() {
			all = append(all, ref.Kind+"/"+ref.Name)
		}
		return strings.Join(all, " ")
	}
	for want, object := range map[string]client.Object{
		"ConfigMap/first VirtualMachine/vm VirtualMachine/vm2": get(t, s, ns, "dv1", &cdiv1.DataVolume{}),
		"VirtualMachine/vm VirtualMachine/vm2":                 get(t, s, ns, "pvc2", &corev1.PersistentVolumeClaim{}),
		"":                                                     get(t, s, ns, "pvc1", &corev1.PersistentVolumeClaim{}),
	} {
		if got := owners(object); got != want {
			t.Errorf("%s is owned by %q, want %q", object.GetName(), got, want)
		}
	}
	vm := get(t, s, ns, "vm", &virtv1.VirtualMachine{})
	if len(vm.Spec.Template.Spec.Volumes) != 4 || len(vm.Spec.Template.Spec.Domain.Devices.Disks) != 3 {
		t.Errorf("the VM is %+v", vm.Spec.Template.Spec)
	}
}

func survivesKills(t *testing.T, s *rehearsal.Stage) {
	template := `{apiVersion: template.openshift.io/v1, kind: Template, metadata: {name: t, namespace: %s},
parameters: [{name: PASSWORD, generate: expression, from: "[a-z]{9}"}], objects: [
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: beside}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}},
{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {generateName: vm-}, spec: {runStrategy: Halted, template: {spec: {domain: {}, hostname: "${PASSWORD}"}}}}]}`
	fresh := func(task *declare.Task, params map[string]any) func(t *testing.T) rehearsal.Run {
		return func(t *testing.T) rehearsal.Run {
			t.Helper()
			ns := s.Namespace(t, task)
			create(t, s, fmt.Sprintf(template, ns))
			grantBeside(t, s, ns)
			must(t, s.Client.Create(t.Context(), claim(ns, "pvc")))
			must(t, s.Client.Create(t.Context(), &cdiv1.DataVolume{ObjectMeta: meta(ns, "dv"), Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, Storage: &cdiv1.StorageSpec{}}}))
			return rehearsal.Run{Task: task, Namespace: ns, Name: "run", UID: "u1", Params: params}
		}
	}
	oneVM := func(t *testing.T, run rehearsal.Run, o rehearsal.Outcome) {
		t.Helper()
		succeeds(t, o)
		all := vms(t, s, run.Namespace)
		if len(all) != 1 || all[0].Name != o.Results["name"] || all[0].Annotations[once.AnnotationRun] != "u1" {
			t.Fatalf("%d VMs, results %v", len(all), o.Results)
		}
		dv := get(t, s, run.Namespace, "dv", &cdiv1.DataVolume{})
		if len(dv.OwnerReferences) != 1 || dv.OwnerReferences[0].UID != all[0].UID {
			t.Errorf("the DataVolume is owned by %v", dv.OwnerReferences)
		}
	}
	t.Run("create-vm-from-manifest", func(t *testing.T) {
		s.Killed(t, fresh(fromManifest, map[string]any{"manifest": fmt.Sprintf(manifest, "generateName: vm-"), "ownDataVolumes": []string{"dv"}}), oneVM)
	})
	t.Run("create-vm-from-template", func(t *testing.T) {
		s.Killed(t, fresh(fromTemplate, map[string]any{"templateName": "t", "ownDataVolumes": []string{"dv"}, "ownPersistentVolumeClaims": []string{"pvc"}}), func(t *testing.T, run rehearsal.Run, o rehearsal.Outcome) {
			t.Helper()
			oneVM(t, run, o)
			get(t, s, run.Namespace, "beside", &corev1.PersistentVolumeClaim{})
		})
	})
	for _, params := range []map[string]any{
		{"sourceTemplateName": "t"},
		{"sourceTemplateName": "t", "targetTemplateName": "copy", "allowReplace": "true"},
	} {
		t.Run(fmt.Sprint("copy-template ", params), func(t *testing.T) {
			s.Killed(t, fresh(copying, params), func(t *testing.T, run rehearsal.Run, o rehearsal.Outcome) {
				t.Helper()
				succeeds(t, o)
				var all templatev1.TemplateList
				must(t, s.Client.List(t.Context(), &all, client.InNamespace(run.Namespace)))
				if len(all.Items) != 2 {
					t.Errorf("%d templates", len(all.Items))
				}
				get(t, s, run.Namespace, o.Results["name"], &templatev1.Template{})
			})
		})
	}
	t.Run("modify-vm-template", func(t *testing.T) {
		s.Killed(t, fresh(modifying, map[string]any{"templateName": "t", "disks": []string{`{"name":"a"}`}}), func(t *testing.T, run rehearsal.Run, o rehearsal.Outcome) {
			t.Helper()
			succeeds(t, o)
			if vm := virtualMachine(t, s, run.Namespace, "t"); len(vm.Spec.Template.Spec.Domain.Devices.Disks) != 1 {
				t.Errorf("the VM is %+v", vm.Spec.Template.Spec)
			}
		})
		s.Killed(t, fresh(modifying, map[string]any{"templateName": "t", "deleteTemplate": "true"}), func(t *testing.T, run rehearsal.Run, o rehearsal.Outcome) {
			t.Helper()
			succeeds(t, o)
			if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: run.Namespace, Name: "t"}, &templatev1.Template{}); !apierrors.IsNotFound(err) {
				t.Errorf("the template is there: %v", err)
			}
		})
	})
}

// create makes the object that text describes.
func create(t *testing.T, s *rehearsal.Stage, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(text), &object.Object))
	must(t, s.Client.Create(t.Context(), object))
	return object
}

// grantBeside lets create-vm-from-template make the claims of a template, as its page asks for.
func grantBeside(t *testing.T, s *rehearsal.Stage, ns string) {
	t.Helper()
	create(t, s, `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: beside, namespace: `+ns+`},
rules: [{apiGroups: [""], resources: [persistentvolumeclaims], verbs: [create]}]}`)
	create(t, s, `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: beside, namespace: `+ns+`},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: beside}, subjects: [{kind: ServiceAccount, name: create-vm-from-template-task, namespace: `+ns+`}]}`)
	allowed(t, s, ns, "create-vm-from-template-task", "create", "persistentvolumeclaims")
}

// virtualMachine reads the VirtualMachine in a Template.
func virtualMachine(t *testing.T, s *rehearsal.Stage, ns, name string) *virtv1.VirtualMachine {
	t.Helper()
	tmpl := get(t, s, ns, name, &templatev1.Template{})
	vm := &virtv1.VirtualMachine{}
	must(t, yaml.Unmarshal(tmpl.Objects[len(tmpl.Objects)-1].Raw, vm))
	return vm
}

func owns(t *testing.T, s *rehearsal.Stage) {
	ns := s.Namespace(t, fromManifest, copying)
	create(t, s, fmt.Sprintf(`{apiVersion: template.openshift.io/v1, kind: Template, metadata: {name: t, namespace: %s}, objects: []}`, ns))
	manifestRun := rehearsal.Run{Task: fromManifest, Namespace: ns, Name: "run", UID: "u1", Params: map[string]any{"manifest": named("vm"), "setOwnerReference": "true"}}
	copyRun := rehearsal.Run{Task: copying, Namespace: ns, Name: "run", UID: "u1", Params: map[string]any{"sourceTemplateName": "t", "setOwnerReference": "true"}}
	for _, run := range []rehearsal.Run{manifestRun, copyRun} {
		name := succeeds(t, s.Run(t, run)).Results["name"]
		var object client.Object = &virtv1.VirtualMachine{}
		if run.Task == copying {
			object = &templatev1.Template{}
		}
		refs := get(t, s, ns, name, object).GetOwnerReferences()
		if len(refs) != 1 || refs[0].Kind != "TaskRun" || refs[0].Name != "run" || refs[0].UID != "u1" {
			t.Errorf("%s is owned by %v", run.Task.Name, refs)
		}
	}
	manifestRun.Params["namespace"], copyRun.Params["targetTemplateNamespace"] = "other", "other"
	ends(t, s.Run(t, manifestRun), 2, "cannot own an object in namespace other")
	ends(t, s.Run(t, copyRun), 255, "cannot own an object in namespace other")
}

const secretTemplate = `{apiVersion: template.openshift.io/v1, kind: Template,
metadata: {name: t, namespace: %s, labels: {os.template.kubevirt.io/debian12: "true"}},
message: "made ${NAME}", labels: {team: builds},
parameters: [{name: NAME, required: true}, {name: CORES, value: "2"}, {name: PASSWORD, generate: expression, from: "[a-zA-Z0-9]{12}"}],
objects: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: "${NAME}"}, spec: {running: false, template: {spec: {
domain: {cpu: {cores: "${{CORES}}"}}, volumes: [{name: c, cloudInitNoCloud: {userData: "p=${PASSWORD} $${HOME}"}}]}}}}]}`

func fillsIn(t *testing.T, s *rehearsal.Stage) {
	ns := s.Namespace(t, fromTemplate)
	create(t, s, fmt.Sprintf(secretTemplate, ns))
	create(t, s, fmt.Sprintf(`{apiVersion: template.openshift.io/v1, kind: Template, metadata: {name: novm, namespace: %s}, objects: [{apiVersion: v1, kind: Pod, metadata: {name: x}}]}`, ns))
	run := func(uid string, params map[string]any) rehearsal.Outcome {
		return s.Run(t, rehearsal.Run{Task: fromTemplate, Namespace: ns, Name: "run", UID: uid, Params: params})
	}
	params := map[string]any{"templateName": "  t ", "templateNamespace": "  " + ns + "  ", "templateParams": []string{"NAME:vm", "CORES:3"}, "startVM": "true"}
	o := succeeds(t, run("u1", params))
	if o.Results["name"] != "vm" || !strings.Contains(o.Log, "made vm") {
		t.Errorf("results %v, logged:\n%s", o.Results, o.Log)
	}
	vm := get(t, s, ns, "vm", &virtv1.VirtualMachine{})
	data := vm.Spec.Template.Spec.Volumes[0].CloudInitNoCloud.UserData
	if len(data) != len("p=123456789012 ${HOME}") || !strings.HasSuffix(data, " ${HOME}") || *vm.Spec.RunStrategy != virtv1.RunStrategyAlways || vm.Spec.Running != nil || vm.Spec.Template.Spec.Domain.CPU.Cores != 3 {
		t.Errorf("the VM is %+v with %q", vm.Spec, data)
	}
	for key, want := range map[string]string{"vm.kubevirt.io/template": "t", "vm.kubevirt.io/template.namespace": ns, "team": "builds", "os.template.kubevirt.io/debian12": "true"} {
		if vm.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, vm.Labels[key], want)
		}
	}
	// A retry generates nothing anew.
	succeeds(t, run("u1", params))
	if again := get(t, s, ns, "vm", &virtv1.VirtualMachine{}); again.Spec.Template.Spec.Volumes[0].CloudInitNoCloud.UserData != data {
		t.Error("a retry changed the password")
	}
	ends(t, run("u2", params), 4, `virtualmachines.kubevirt.io "vm" already exists`)
	ends(t, run("u3", map[string]any{"templateName": " "}), 2, "only one of vm-manifest, template-name or virtctl should be specified")
	ends(t, run("u3", map[string]any{"templateName": "t"}), 1, "required params are missing values: NAME")
	ends(t, run("u3", map[string]any{"templateName": "t", "templateParams": []string{"NAME:a", "ALIAS:b"}}), 1, "it has no parameter ALIAS")
	ends(t, run("u3", map[string]any{"templateName": "t", "templateParams": []string{"V1"}}), 2, `invalid template-params: no key found before "V1"; pair should be in "KEY:VAL" format`)
	ends(t, run("u3", map[string]any{"templateName": "novm"}), 1, "no VM object found in the template")
	ends(t, run("u3", map[string]any{"templateName": "none"}), 1, `templates.template.openshift.io "none" not found`)
	ends(t, run("u3", map[string]any{"templateName": "t", "templateKind": "Pod"}), 2, `templateKind: "Pod" is not known`)
	ends(t, run("u3", map[string]any{"templateName": "t", "templateKind": "VirtualMachineTemplate"}), 1, `virtualmachinetemplates.template.kubevirt.io "t" not found`)
}

func copies(t *testing.T, s *rehearsal.Stage) {
	ns := s.Namespace(t, copying)
	create(t, s, fmt.Sprintf(secretTemplate, ns))
	run := func(uid string, params map[string]any) rehearsal.Outcome {
		return s.Run(t, rehearsal.Run{Task: copying, Namespace: ns, Name: "run", UID: uid, Params: params})
	}
	o := succeeds(t, run("u1", map[string]any{"sourceTemplateName": "t"}))
	if !strings.HasPrefix(o.Results["name"], "t-") || o.Results["namespace"] != ns {
		t.Errorf("results are %v", o.Results)
	}
	made := get(t, s, ns, o.Results["name"], &templatev1.Template{})
	if made.Labels["template.kubevirt.io/type"] != "vm" || len(made.Parameters) != 3 || len(made.Objects) != 1 || made.Message != "made ${NAME}" {
		t.Errorf("the copy is %+v", made)
	}
	target := map[string]any{"sourceTemplateName": "t", "targetTemplateName": "copy"}
	succeeds(t, run("u2", target))
	succeeds(t, run("u2", target))
	ends(t, run("u3", target), 3, `templates.template.openshift.io "copy" already exists`)
	before := get(t, s, ns, "copy", &templatev1.Template{})
	before.Message = "changed"
	must(t, s.Client.Update(t.Context(), before))
	target["allowReplace"] = "true"
	succeeds(t, run("u3", target))
	if after := get(t, s, ns, "copy", &templatev1.Template{}); after.UID != before.UID || after.Message != "made ${NAME}" {
		t.Errorf("the replaced copy is %+v", after)
	}
	ends(t, run("u4", map[string]any{"sourceTemplateName": " "}), 255, "source-template-name param has to be specified")
	ends(t, run("u4", map[string]any{"sourceTemplateName": "none"}), 3, `templates.template.openshift.io "none" not found`)
	ends(t, run("u4", map[string]any{"sourceTemplateName": "t", "allowReplace": "yes"}), 255, `allowReplace: "yes" is neither`)
}

func modifies(t *testing.T, s *rehearsal.Stage) {
	ns := s.Namespace(t, modifying)
	create(t, s, fmt.Sprintf(secretTemplate, ns))
	run := func(params map[string]any) rehearsal.Outcome {
		params["templateName"] = "t"
		return s.Run(t, rehearsal.Run{Task: modifying, Namespace: ns, Name: "run", UID: "u1", Params: params})
	}
	// Ten at once, each with a label of its own: no write is lost.
	done := make(chan rehearsal.Outcome)
	for i := range 10 {
		go func() { done <- run2(t, s, ns, i) }()
	}
	for range 10 {
		succeeds(t, <-done)
	}
	tmpl := get(t, s, ns, "t", &templatev1.Template{})
	for i := range 10 {
		if tmpl.Labels[fmt.Sprint("n", i)] != "x" {
			t.Errorf("label n%d is lost: %v", i, tmpl.Labels)
		}
	}
	o := succeeds(t, run(map[string]any{"cpuCores": "4", "memory": "2Gi", "disks": []string{`{"name":"d","disk":{"bus":"virtio"}}`}}))
	if o.Results["name"] != "t" || o.Results["namespace"] != ns {
		t.Errorf("results are %v", o.Results)
	}
	vm := virtualMachine(t, s, ns, "t")
	if vm.Spec.Template.Spec.Domain.CPU.Cores != 4 || vm.Spec.Template.Spec.Domain.Resources.Requests.Memory().String() != "2Gi" || len(vm.Spec.Template.Spec.Domain.Devices.Disks) != 1 {
		t.Errorf("the VM is %+v", vm.Spec.Template.Spec)
	}
	ends(t, run(map[string]any{"memory": "lots"}), 1, "wrong memory value")
	ends(t, run(map[string]any{"deleteTemplate": "yes"}), 1, `deleteTemplate: "yes" is neither`)
	succeeds(t, run(map[string]any{"deleteTemplate": "true", "memory": "ignored"}))
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(tmpl), tmpl); !apierrors.IsNotFound(err) {
		t.Errorf("the template is there: %v", err)
	}
	ends(t, run(map[string]any{"deleteTemplate": "true"}), 3, `templates.template.openshift.io "t" not found`)
	succeeds(t, s.Run(t, rehearsal.Run{Task: modifying, Namespace: ns, Name: "run", UID: "u1", Retry: 1, Params: map[string]any{"templateName": "t", "deleteTemplate": "true"}}))
	ends(t, run(map[string]any{}), 3, `templates.template.openshift.io "t" not found`)
}

func run2(t *testing.T, s *rehearsal.Stage, ns string, i int) rehearsal.Outcome {
	t.Helper()
	return s.Run(t, rehearsal.Run{Task: modifying, Namespace: ns, Name: "run", UID: fmt.Sprint("c", i), Params: map[string]any{"templateName": "t", "templateLabels": []string{fmt.Sprintf("n%d:x", i)}}})
}

const vmt = `{apiVersion: template.kubevirt.io/%s, kind: VirtualMachineTemplate, metadata: {name: v, namespace: %s}, spec: {message: "made ${NAME}",
parameters: [{name: NAME, required: true}], virtualMachine: {metadata: {name: "${NAME}"}, spec: {runStrategy: Halted, template: {spec: {domain: {}}}}}}}`

// useVMT makes a VM from the VirtualMachineTemplate v, copies it, and changes and deletes the copy.
func useVMT(t *testing.T, s *rehearsal.Stage, ns string) {
	t.Helper()
	run := func(task *declare.Task, params map[string]any) rehearsal.Outcome {
		return s.Run(t, rehearsal.Run{Task: task, Namespace: ns, Name: "run", UID: "u1", Params: params})
	}
	succeeds(t, run(fromTemplate, map[string]any{"templateName": "v", "templateParams": []string{"NAME:vm"}}))
	if vm := get(t, s, ns, "vm", &virtv1.VirtualMachine{}); vm.Labels["vm.kubevirt.io/template"] != "v" {
		t.Errorf("the VM has labels %v", vm.Labels)
	}
	succeeds(t, run(copying, map[string]any{"sourceTemplateName": "v", "targetTemplateName": "w"}))
	succeeds(t, run(copying, map[string]any{"sourceTemplateName": "v", "targetTemplateName": "w", "allowReplace": "true"}))
	succeeds(t, run(modifying, map[string]any{"templateName": "w", "cpuCores": "2", "templateParameters": []string{`{"name":"MORE"}`}}))
	succeeds(t, run(fromTemplate, map[string]any{"templateName": "w", "templateKind": "VirtualMachineTemplate", "templateParams": []string{"NAME:second"}}))
	if vm := get(t, s, ns, "second", &virtv1.VirtualMachine{}); vm.Spec.Template.Spec.Domain.CPU == nil || vm.Spec.Template.Spec.Domain.CPU.Cores != 2 {
		t.Errorf("the VM is %+v", vm.Spec.Template.Spec)
	}
	succeeds(t, run(modifying, map[string]any{"templateName": "w", "deleteTemplate": "true"}))
	ends(t, run(fromTemplate, map[string]any{"templateName": "w"}), 1, `"w" not found`)
}

func servesVMT(t *testing.T, s *rehearsal.Stage) {
	ns := s.Namespace(t, fromTemplate, copying, modifying)
	create(t, s, fmt.Sprintf(vmt, "v1beta1", ns))
	useVMT(t, s, ns)
}

func servesAlpha(t *testing.T, s *rehearsal.Stage) {
	ns := s.Namespace(t, fromTemplate, copying, modifying)
	// The group is told of for as long as it has any kind.
	must(t, s.Client.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "virtualmachinetemplaterequests.template.kubevirt.io"}}))
	definition := get(t, s, "", "virtualmachinetemplates.template.kubevirt.io", &apiextensionsv1.CustomResourceDefinition{})
	for i := range definition.Spec.Versions {
		v := &definition.Spec.Versions[i]
		v.Served = v.Name == "v1alpha1"
	}
	must(t, s.Client.Update(t.Context(), definition))
	gone(t, s, "template.kubevirt.io", "v1beta1")
	create(t, s, fmt.Sprintf(vmt, "v1alpha1", ns))
	useVMT(t, s, ns)
}

func servesNothing(t *testing.T, s *rehearsal.Stage) {
	ns := s.Namespace(t, fromTemplate)
	run := func(kind string) rehearsal.Outcome {
		return s.Run(t, rehearsal.Run{Task: fromTemplate, Namespace: ns, Name: "run", UID: "u1", Params: map[string]any{"templateName": "v", "templateKind": kind}})
	}
	drop := func(name, group, version string) {
		must(t, s.Client.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		gone(t, s, group, version)
	}
	drop("templates.template.openshift.io", "template.openshift.io", "v1")
	ends(t, run(""), 1, `virtualmachinetemplates.template.kubevirt.io "v" not found`)
	ends(t, run("Template"), 1, "the cluster does not serve it: template.openshift.io")
	drop("virtualmachinetemplates.template.kubevirt.io", "template.kubevirt.io", "v1alpha1")
	ends(t, run(""), 1, "the cluster serves neither Template (template.openshift.io) nor VirtualMachineTemplate (template.kubevirt.io)")
	ends(t, run("VirtualMachineTemplate"), 1, "the cluster does not serve it: template.kubevirt.io")
}

// allowed waits until the API server grants the verb to the ServiceAccount.
func allowed(t *testing.T, s *rehearsal.Stage, ns, account, verb, resource string) {
	t.Helper()
	poll(t, account+" may "+verb+" "+resource, func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + ns + ":" + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: verb, Resource: resource},
		}}
		must(t, s.Client.Create(t.Context(), review))
		return review.Status.Allowed
	})
}

// gone waits until the API server serves the version no more, and tells of it no more to who begins then.
func gone(t *testing.T, s *rehearsal.Stage, group, version string) {
	t.Helper()
	poll(t, group+"/"+version+" is served no more", func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: map[string]string{"template.openshift.io": "TemplateList"}[group]})
		if list.GetKind() == "" {
			list.SetKind("VirtualMachineTemplateList")
		}
		err := s.Client.List(t.Context(), list)
		return (apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err)) && !s.Tells(t, schema.GroupVersion{Group: group, Version: version})
	})
}

func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}
