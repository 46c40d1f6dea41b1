package main

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// invocation is how a Task of kubevirt-tekton-tasks starts its program: its step's command, args and env.
type invocation struct {
	argv []string
	env  map[string]string
}

func (i invocation) lookup(name string) (string, bool) {
	value, ok := i.env[name]
	return value, ok
}

// request reads the invocation as main does.
func (i invocation) request(t *testing.T) (*request, error) {
	t.Helper()
	args := invokedAs(i.argv)
	if args[0] != entrypointName {
		t.Fatalf("%v is not taken for a program of kubevirt-tekton-tasks: %v", i.argv, args)
	}
	name, rest, err := chosen(args[1:], i.lookup)
	if err != nil {
		return nil, err
	}
	return read(name, rest, i.lookup)
}

// The steps of all Tasks of kubevirt-tekton-tasks, v0.22 and later, and of what v0.14 had more.
func TestTasksOfTheFieldAreUnderstood(t *testing.T) {
	for name, c := range map[string]struct {
		invocation
		task    string
		strings map[string]string
		arrays  map[string][]string
	}{
		"create-vm-from-manifest": {
			invocation{[]string{"create-vm", "--output=yaml"}, map[string]string{
				"VM_MANIFEST": "kind: VirtualMachine", "VM_NAMESPACE": "shop", "VIRTCTL": "", "START_VM": "true", "SET_OWNER_REFERENCE": "false", "RUN_STRATEGY": "Halted",
			}},
			"create-vm-from-manifest",
			map[string]string{"manifest": "kind: VirtualMachine", "namespace": "shop", "startVM": "true", "setOwnerReference": "false", "runStrategy": "Halted"},
			nil,
		},
		"create-vm-from-manifest by entrypoint, with the volumes of v0.14": {
			invocation{[]string{"entrypoint", "--output", "yaml", "--dvs", "a", "rootdisk:b", "--own-dvs", "--pvcs", "c", "--own-pvcs", "d"}, map[string]string{
				"COMMAND": "create-vm", "VM_MANIFEST": "x", "VM_NAMESPACE": "",
			}},
			"create-vm-from-manifest",
			map[string]string{"manifest": "x"},
			map[string][]string{"dataVolumes": {"a", "rootdisk:b"}, "ownDataVolumes": nil, "persistentVolumeClaims": {"c"}, "ownPersistentVolumeClaims": {"d"}},
		},
		"create-vm-from-template": {
			invocation{[]string{"create-vm", "--output=yaml", "--template-params", "NAME:web", "DESC:a", "blue", "one"}, map[string]string{
				"TEMPLATE_NAME": "debian", "TEMPLATE_NAMESPACE": "golden", "VM_NAMESPACE": "shop", "START_VM": "", "RUN_STRATEGY": "",
			}},
			"create-vm-from-template",
			map[string]string{"templateName": "debian", "templateNamespace": "golden", "vmNamespace": "shop"},
			map[string][]string{"templateParams": {"NAME:web", "DESC:a", "blue", "one"}},
		},
		"create-vm-from-template without a template's name": {
			invocation{[]string{"create-vm", "--output=yaml", "--template-params"}, map[string]string{"TEMPLATE_NAME": ""}},
			"create-vm-from-template", map[string]string{}, map[string][]string{"templateParams": nil},
		},
		"modify-data-object": {
			invocation{[]string{"modify-data-object", "--output=yaml"}, map[string]string{
				"DATA_OBJECT_MANIFEST": "kind: DataVolume", "DATA_OBJECT_NAMESPACE": "shop", "WAIT_FOR_SUCCESS": "true", "ALLOW_REPLACE": "false",
				"DELETE_OBJECT": "false", "DELETE_OBJECT_KIND": "", "DELETE_OBJECT_NAME": "", "SET_OWNER_REFERENCE": "false", "TIMEOUT": "1h",
			}},
			"modify-data-object",
			map[string]string{
				"manifest": "kind: DataVolume", "namespace": "shop", "waitForSuccess": "true", "allowReplace": "false",
				"deleteObject": "false", "setOwnerReference": "false", "timeout": "1h", "cache": "off",
			},
			nil,
		},
		"disk-virt-customize": {
			invocation{[]string{"entrypoint", "--verbose", "true"}, map[string]string{
				"COMMAND": "disk-virt-customize", "VIRT_COMMANDS": "install nginx", "ADDITIONAL_VIRT_OPTIONS": "--smp 2", "LIBGUESTFS_BACKEND": "direct",
			}},
			"disk-virt-customize",
			map[string]string{"pvc": "targetpvc", "virtCommands": "install nginx", "additionalVirtOptions": "--smp 2", "verbose": "true", "cache": "off"},
			nil,
		},
		"disk-virt-customize of v0.22": {
			invocation{[]string{"entrypoint", "--verbose", "false"}, map[string]string{
				"COMMAND": "disk-virt-customize", "CUSTOMIZE_COMMANDS": "install nginx", "ADDITIONAL_VIRT_CUSTOMIZE_OPTIONS": "--smp 2",
			}},
			"disk-virt-customize",
			map[string]string{"pvc": "targetpvc", "virtCommands": "install nginx", "additionalVirtOptions": "--smp 2", "verbose": "false", "cache": "off"},
			nil,
		},
		"disk-virt-sysprep of v0.22": {
			invocation{[]string{"entrypoint", "--verbose", "false"}, map[string]string{
				"COMMAND": "disk-virt-sysprep", "SYSPREP_COMMANDS": "update", "ADDITIONAL_VIRT_SYSPREP_OPTIONS": "",
			}},
			"disk-virt-sysprep",
			map[string]string{"pvc": "targetpvc", "virtCommands": "update", "verbose": "false", "cache": "off"},
			nil,
		},
		"execute-in-vm, a command": {
			invocation{[]string{"entrypoint", "--", "systemctl", "start", "a b && c"}, map[string]string{
				"COMMAND": "execute-in-vm", "VM_NAME": "web", "VM_NAMESPACE": "", "EXECUTE_SCRIPT": "", "CONNECTION_SECRET_NAME": "keys",
			}},
			"execute-in-vm",
			map[string]string{"vmName": "web", "secretName": "keys", "script": "systemctl start a b && c"},
			nil,
		},
		"execute-in-vm, a script": {
			invocation{[]string{"entrypoint", "--"}, map[string]string{
				"COMMAND": "execute-in-vm", "VM_NAME": "web", "VM_NAMESPACE": "shop", "EXECUTE_SCRIPT": "uname -a\n", "CONNECTION_SECRET_NAME": "keys",
			}},
			"execute-in-vm",
			map[string]string{"vmName": "web", "vmNamespace": "shop", "secretName": "keys", "script": "uname -a\n"},
			nil,
		},
		"cleanup-vm": {
			invocation{[]string{"entrypoint", "--stop", "true", "--delete", "false", "--timeout", "10m", "--", "systemctl", "stop", "web"}, map[string]string{
				"COMMAND": "execute-in-vm", "VM_NAME": "web", "CONNECTION_SECRET_NAME": "keys", "EXECUTE_SCRIPT": "",
			}},
			"cleanup-vm",
			map[string]string{"vmName": "web", "secretName": "keys", "stop": "true", "delete": "false", "timeout": "10m", "script": "systemctl stop web"},
			nil,
		},
		"cleanup-vm, both a script and a command, which the task refuses": {
			invocation{[]string{"entrypoint", "--stop", "true", "--", "true"}, map[string]string{
				"COMMAND": "execute-in-vm", "VM_NAME": "web", "CONNECTION_SECRET_NAME": "__empty__", "EXECUTE_SCRIPT": "false",
			}},
			"cleanup-vm",
			map[string]string{"vmName": "web", "secretName": "__empty__", "stop": "true", "script": "false"},
			map[string][]string{"command": {"true"}},
		},
		"generate-ssh-keys": {
			invocation{[]string{"entrypoint", "--", "user:root", "additional-ssh-options:-p", "8022", "host-public-key:ssh-rsa AAAA"}, map[string]string{
				"COMMAND": "generate-ssh-keys", "PUBLIC_KEY_SECRET_NAME": "public", "PUBLIC_KEY_SECRET_NAMESPACE": "", "PRIVATE_KEY_SECRET_NAME": "private",
				"PRIVATE_KEY_SECRET_NAMESPACE": "", "ADDITIONAL_SSH_KEYGEN_OPTIONS": "-t ed25519",
			}},
			"generate-ssh-keys",
			map[string]string{"publicKeySecretName": "public", "privateKeySecretName": "private", "additionalSSHKeygenOptions": "-t ed25519"},
			map[string][]string{"privateKeyConnectionOptions": {"user:root", "additional-ssh-options:-p 8022", "host-public-key:ssh-rsa AAAA"}},
		},
		"wait-for-vmi-status": {
			invocation{[]string{"entrypoint"}, map[string]string{
				"COMMAND": "wait-for-vmi-status", "VMI_NAME": "web", "VMI_NAMESPACE": "", "SUCCESS_CONDITION": "status.phase == Succeeded",
				"FAILURE_CONDITION": "status.phase in (Failed, Unknown)",
			}},
			"wait-for-vmi-status",
			map[string]string{"vmiName": "web", "successCondition": "status.phase == Succeeded", "failureCondition": "status.phase in (Failed, Unknown)"},
			nil,
		},
		"copy-template": {
			invocation{[]string{"copy-template", "--output=yaml"}, map[string]string{
				"SOURCE_TEMPLATE_NAME": "a", "SOURCE_TEMPLATE_NAMESPACE": "x", "TARGET_TEMPLATE_NAME": "b", "TARGET_TEMPLATE_NAMESPACE": "y", "ALLOW_REPLACE": "true",
			}},
			"copy-template",
			map[string]string{"sourceTemplateName": "a", "sourceTemplateNamespace": "x", "targetTemplateName": "b", "targetTemplateNamespace": "y", "allowReplace": "true"},
			nil,
		},
		"modify-vm-template": {
			invocation{
				[]string{
					"modify-vm-template", "--output=yaml", "--template-labels", "a:b", "c:d", "--template-annotations", "--vm-labels", "--vm-annotations", "--disks", `{"name": "x"}`,
					"--volumes", "--datavolumeTemplates", "--templateParameters", `{"name": "P"}`, `{"name": "Q"}`,
				}, map[string]string{
					"TEMPLATE_NAME": "a", "TEMPLATE_NAMESPACE": "", "CPU_SOCKETS": "2", "CPU_CORES": "0", "CPU_THREADS": "0", "MEMORY": "2G", "DELETE_DATAVOLUME_TEMPLATE": "false",
					"DELETE_DISKS": "true", "DELETE_VOLUMES": "false", "DELETE_TEMPLATE_PARAMETERS": "false", "DELETE_TEMPLATE": "false",
				},
			},
			"modify-vm-template",
			map[string]string{
				"templateName": "a", "cpuSockets": "2", "cpuCores": "0", "cpuThreads": "0", "memory": "2G", "deleteDatavolumeTemplate": "false",
				"deleteDisks": "true", "deleteVolumes": "false", "deleteTemplateParameters": "false", "deleteTemplate": "false",
			},
			map[string][]string{
				"templateLabels": {"a:b", "c:d"}, "templateAnnotations": nil, "vmLabels": nil, "vmAnnotations": nil, "disks": {`{"name": "x"}`},
				"volumes": nil, "datavolumeTemplates": nil, "templateParameters": {`{"name": "P"}`, `{"name": "Q"}`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.request(t)
			if err != nil {
				t.Fatal(err)
			}
			if got.task.Name != c.task {
				t.Errorf("task %s, want %s", got.task.Name, c.task)
			}
			maps.DeleteFunc(got.strings, func(_, value string) bool { return value == "" })
			if !maps.Equal(got.strings, c.strings) {
				t.Errorf("strings %v, want %v", got.strings, c.strings)
			}
			if !reflect.DeepEqual(got.arrays, c.arrays) && len(got.arrays)+len(c.arrays) > 0 {
				t.Errorf("arrays %v, want %v", got.arrays, c.arrays)
			}
			for param := range c.arrays {
				if p, _ := got.task.Param(param); !p.Array {
					t.Errorf("%s is no array of %s", param, c.task)
				}
			}
		})
	}
}

// What the programs refuse, this one refuses: with their exit codes, and words that say what is wrong.
func TestWrongCallsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		invocation
		code int
		want string
	}{
		"no command":           {invocation{argv: []string{"entrypoint", "--help"}}, 1, "command not defined"},
		"an unknown command":   {invocation{[]string{"entrypoint"}, map[string]string{"COMMAND": "rm -rf"}}, 1, `no program "rm"`},
		"an unknown flag":      {invocation{argv: []string{"create-vm", "--colour", "red"}}, 2, "unknown argument --colour"},
		"a flag without value": {invocation{argv: []string{"execute-in-vm", "--stop", "--delete", "true"}}, 255, "missing value for --stop"},
		"another output":       {invocation{argv: []string{"create-vm", "-o", "json"}}, 2, `"json" is not supported`},
		"words that mean nothing": {
			invocation{argv: []string{"modify-data-object", "--output=yaml", "more"}}, 255, "too many arguments",
		},
		"a manifest and a template": {
			invocation{[]string{"create-vm"}, map[string]string{"VM_MANIFEST": "x", "TEMPLATE_NAME": "y"}}, 2, "only one of the options of create-vm-from-template and manifest",
		},
		"a template's parameters without a template": {
			invocation{[]string{"create-vm", "--template-params", "A:B"}, map[string]string{"VM_MANIFEST": "x"}}, 2, "only one of",
		},
		"the uploader, whose disk is elsewhere": {
			invocation{argv: []string{"/usr/local/bin/disk-uploader", "--export-source-kind", "vm"}}, 2, "apply Slipway's Task disk-uploader",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.request(t)
			var exit *declare.Exit
			if !errors.As(err, &exit) || exit.Code != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with code %d that says %q", err, c.code, c.want)
			}
		})
	}
}

// The parameters reach the task by the names that our own Tasks use.
func TestTheTaskSeesTheParameters(t *testing.T) {
	i := invocation{
		[]string{"entrypoint", "--", "user:debian", "disable-strict-host-key-checking:true"},
		map[string]string{"COMMAND": "generate-ssh-keys", "POD_NAMESPACE": "shop", "PRIVATE_KEY_SECRET_NAME": "private"},
	}
	r, err := i.request(t)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	task := *r.task
	task.Rules = nil // no cluster here
	task.Run = func(_ context.Context, call *declare.Call) error {
		got = map[string]string{
			"name": call.String("privateKeySecretName"), "namespace": call.NamespaceOr("privateKeySecretNamespace"),
			"options": strings.Join(call.Array("privateKeyConnectionOptions"), ","),
		}
		return nil
	}
	if err := task.Execute(t.Context(), declare.Environment{Args: r.items(), LookupEnv: r.lookup}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"name": "private", "namespace": "shop", "options": "user:debian,disable-strict-host-key-checking:true"}
	if !maps.Equal(got, want) {
		t.Errorf("the task sees %v, want %v", got, want)
	}
}

// Called by its own name the program is what it always was.
func TestOtherNamesAreLeftAlone(t *testing.T) {
	for _, argv := range [][]string{{"/slipway", "task", "x"}, {"slipway"}, {"/usr/bin/slipway", "create-vm"}} {
		if got := invokedAs(argv); !slices.Equal(got, argv[1:]) {
			t.Errorf("%v becomes %v", argv, got)
		}
	}
}
