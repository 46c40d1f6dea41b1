package tasks_test

import (
	"slices"
	"strings"
	"testing"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	"github.com/slipway-vm/slipway/tasks"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// contract is what runs written for kubevirt-tekton-tasks rely on, of v0.26 and of the releases before:
// parameters as NAME=DEFAULT, NAME! for one that a run must give, and NAME[] for a list, empty by default.
type contract struct{ params, results string }

const (
	volumes = " dataVolumes[] ownDataVolumes[] persistentVolumeClaims[] ownPersistentVolumeClaims[]"
	remote  = "vmName! vmNamespace= secretName=__empty__ command[] args[] script="
)

var contracts = map[string]contract{
	"cleanup-vm": {remote + " stop=true delete=false timeout=30m", ""},
	"copy-template": {
		"sourceTemplateName! sourceTemplateNamespace= targetTemplateName= targetTemplateNamespace= allowReplace=false setOwnerReference=false", "name namespace",
	},
	"create-datavolume-from-manifest": {"manifest! waitForSuccess=false", "name namespace"},
	"create-vm-from-manifest":         {"manifest= virtctl= namespace= startVM= runStrategy= setOwnerReference=false" + volumes, "name namespace"},
	"create-vm-from-template":         {"templateName! templateNamespace= templateParams[] vmNamespace= startVM= runStrategy=" + volumes, "name namespace"},
	"disk-uploader":                   {"EXPORT_SOURCE_KIND! EXPORT_SOURCE_NAME! VOLUME_NAME! IMAGE_DESTINATION! SECRET_NAME! PUSH_TIMEOUT=120", "digest"},
	"disk-virt-customize":             {"pvc! virtCommands= customizeCommands= verbose=false additionalVirtOptions= additionalOptions=", ""},
	"disk-virt-sysprep":               {"pvc! virtCommands= sysprepCommands= verbose=false additionalVirtOptions= additionalOptions=", ""},
	"execute-in-vm":                   {remote, ""},
	"generate-ssh-keys": {
		"publicKeySecretName= publicKeySecretNamespace= privateKeySecretName= privateKeySecretNamespace= privateKeyConnectionOptions[] additionalSSHKeygenOptions=",
		"publicKeySecretName publicKeySecretNamespace privateKeySecretName privateKeySecretNamespace",
	},
	"modify-data-object": {
		"manifest= namespace= waitForSuccess=false allowReplace=false deleteObject=false deleteObjectKind= deleteObjectName= timeout=1h setOwnerReference=false",
		"name namespace",
	},
	"modify-vm-template": {
		"templateName! templateNamespace= cpuSockets=0 cpuCores=0 cpuThreads=0 memory= templateLabels[] templateAnnotations[] vmLabels[] vmAnnotations[] " +
			"disks[] deleteDisks=false volumes[] deleteVolumes=false datavolumeTemplates[] deleteDatavolumeTemplate=false " +
			"templateParameters[] deleteTemplateParameters=false deleteTemplate=false", "name namespace",
	},
	"modify-windows-iso-file": {"pvcName=", ""},
	"wait-for-vmi-status":     {"vmiName! vmiNamespace= successCondition= failureCondition=", ""},
}

// written is a parameter as a contract has it.
func written(p tektonv1.ParamSpec) string {
	switch {
	case p.Default == nil:
		return p.Name + "!"
	case p.Type == tektonv1.ParamTypeArray && len(p.Default.ArrayVal) == 0:
		return p.Name + "[]"
	}
	return p.Name + "=" + p.Default.StringVal
}

// A run that the field's task takes is one that ours takes.
func TestContracts(t *testing.T) {
	for name, want := range contracts {
		t.Run(name, func(t *testing.T) {
			task, err := declare.Find(tasks.All(), name)
			if err != nil {
				t.Fatal(err)
			}
			made := decoded(t, task)
			kept := strings.Fields(want.params)
			var params, results, workspaces []string
			for _, p := range made.Spec.Params {
				params = append(params, written(p))
				if p.Default == nil && !slices.Contains(kept, written(p)) {
					t.Errorf("parameter %s is required, and the field's runs do not give it", p.Name)
				}
			}
			for _, r := range made.Spec.Results {
				results = append(results, r.Name)
			}
			for _, p := range kept {
				if !slices.Contains(params, p) {
					t.Errorf("there is no parameter %s; there are %v", p, params)
				}
			}
			for r := range strings.FieldsSeq(want.results) {
				if !slices.Contains(results, r) {
					t.Errorf("there is no result %s; there are %v", r, results)
				}
			}
			for _, w := range made.Spec.Workspaces {
				workspaces = append(workspaces, w.Name)
				if !w.Optional {
					t.Errorf("workspace %s is not optional", w.Name)
				}
			}
			if strings.HasPrefix(name, "disk-virt-") && (len(workspaces) != 10 || workspaces[0] != "data01" || workspaces[9] != "data10") {
				t.Errorf("the workspaces are %v, not data01 to data10", workspaces)
			}
		})
	}
}
