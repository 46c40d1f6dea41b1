package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// program is a program in the images of kubevirt-tekton-tasks, v0.10 to v0.26.
type program struct {
	// task is the task that does its work, when flags and environment ask for it.
	task func(given) string
	// options are its flags and environment variables.
	options []option
	// rest makes a parameter of the words after the flags; nil where there may be none.
	rest func(words []string, r *request)
	// usage is the exit code for a wrong call.
	usage int
	// offline says why the task does without the API, if it does.
	offline string
	// refused says why the program is not run here, and what to do, if it is not.
	refused string
}

// option is an input of a program and the parameter that it becomes.
type option struct {
	// param is the parameter; none for what our tasks do anyway.
	param string
	kind  optionKind
	// flag is its name with the dashes, env its environment variable; either may be empty.
	flag, env string
}

// optionKind says what values a flag takes.
type optionKind int

const (
	one  optionKind = iota // a value
	many                   // all values up to the next flag, for an array parameter
	none                   // no value
	yaml                   // "yaml" and nothing else: the output's format, which is that of our tasks
)

// given is what flags and environment name, by flag or environment variable.
type given map[string]bool

func always(task string) func(given) string { return func(given) string { return task } }

func str(param, flag, env string) option { return option{param: param, flag: flag, env: env} }
func list(param, flag string) option     { return option{param: param, flag: flag, kind: many} }

// common adds the options that every program takes.
func common(options ...option) []option {
	return append(options, option{flag: "--output", kind: yaml}, option{flag: "-o", kind: yaml}, option{flag: "--debug", kind: none})
}

// programs are all of them, by name.
func programs() map[string]program {
	return map[string]program{
		"create-vm":           createVM(),
		"modify-data-object":  modifyDataObject(),
		"copy-template":       copyTemplate(),
		"modify-vm-template":  modifyVMTemplate(),
		"wait-for-vmi-status": waitForVMIStatus(),
		"generate-ssh-keys":   generateSSHKeys(),
		"execute-in-vm":       executeInVM(),
		"disk-virt-customize": diskVirt("disk-virt-customize", "CUSTOMIZE"),
		"disk-virt-sysprep":   diskVirt("disk-virt-sysprep", "SYSPREP"),
		"disk-uploader": {usage: 2, refused: "disk-uploader: the Task of kubevirt-tekton-tasks reaches its disk through a VirtualMachineExport, " +
			"which Slipway does not serve; apply Slipway's Task disk-uploader, which has the same name and parameters and mounts the claim"},
	}
}

func programNames() string {
	return strings.Join(slices.Sorted(maps.Keys(programs())), ", ")
}

// paramVMNamespace is the parameter of a VM's namespace, which one of the two tasks that create a VM
// calls paramNamespace.
const (
	paramVMNamespace = "vmNamespace"
	paramNamespace   = "namespace"
)

func createVM() program {
	return program{
		usage: 2,
		task: func(g given) string {
			if g["TEMPLATE_NAME"] || g["--template-name"] {
				return "create-vm-from-template"
			}
			return "create-vm-from-manifest"
		},
		options: common(
			str("manifest", "--vm-manifest", "VM_MANIFEST"), str("virtctl", "--virtctl", "VIRTCTL"),
			str("templateName", "--template-name", "TEMPLATE_NAME"), str("templateNamespace", "--template-namespace", "TEMPLATE_NAMESPACE"),
			list("templateParams", "--template-params"),
			str(paramVMNamespace, "--vm-namespace", "VM_NAMESPACE"),
			str("startVM", "--start-vm", "START_VM"), str("runStrategy", "--run-strategy", "RUN_STRATEGY"),
			str("setOwnerReference", "--set-owner-reference", "SET_OWNER_REFERENCE"),
			list("dataVolumes", "--dvs"), list("ownDataVolumes", "--own-dvs"),
			list("persistentVolumeClaims", "--pvcs"), list("ownPersistentVolumeClaims", "--own-pvcs"),
		),
	}
}

func modifyDataObject() program {
	return program{
		usage: declare.CodeUsage, task: always("modify-data-object"),
		options: common(
			str("manifest", "--data-object-manifest", "DATA_OBJECT_MANIFEST"), str("namespace", "--data-object-namespace", "DATA_OBJECT_NAMESPACE"),
			str("waitForSuccess", "--wait-for-success", "WAIT_FOR_SUCCESS"), str("allowReplace", "--allow-replace", "ALLOW_REPLACE"),
			str("deleteObject", "--delete-object", "DELETE_OBJECT"), str("deleteObjectKind", "--delete-object-kind", "DELETE_OBJECT_KIND"),
			str("deleteObjectName", "--delete-object-name", "DELETE_OBJECT_NAME"),
			str("timeout", "--timeout", "TIMEOUT"), str("setOwnerReference", "--set-owner-reference", "SET_OWNER_REFERENCE"),
		),
	}
}

func copyTemplate() program {
	return program{
		usage: declare.CodeUsage, task: always("copy-template"),
		options: common(
			str("sourceTemplateName", "--source-template-name", "SOURCE_TEMPLATE_NAME"), str("sourceTemplateNamespace", "--source-template-namespace", "SOURCE_TEMPLATE_NAMESPACE"),
			str("targetTemplateName", "--target-template-name", "TARGET_TEMPLATE_NAME"), str("targetTemplateNamespace", "--target-template-namespace", "TARGET_TEMPLATE_NAMESPACE"),
			str("allowReplace", "--allow-replace", "ALLOW_REPLACE"), str("setOwnerReference", "--set-owner-reference", "SET_OWNER_REFERENCE"),
		),
	}
}

func modifyVMTemplate() program {
	return program{
		usage: 1, task: always("modify-vm-template"),
		options: common(
			str("templateName", "--template-name", "TEMPLATE_NAME"), str("templateNamespace", "--template-namespace", "TEMPLATE_NAMESPACE"),
			str("cpuSockets", "--cpu-sockets", "CPU_SOCKETS"), str("cpuCores", "--cpu-cores", "CPU_CORES"), str("cpuThreads", "--cpu-threads", "CPU_THREADS"),
			str("memory", "--memory", "MEMORY"),
			list("templateLabels", "--template-labels"), list("templateAnnotations", "--template-annotations"),
			list("vmLabels", "--vm-labels"), list("vmAnnotations", "--vm-annotations"),
			list("disks", "--disks"), list("volumes", "--volumes"),
			list("datavolumeTemplates", "--datavolumeTemplates"), list("templateParameters", "--templateParameters"),
			str("deleteDisks", "--delete-disks", "DELETE_DISKS"), str("deleteVolumes", "--delete-volumes", "DELETE_VOLUMES"),
			str("deleteDatavolumeTemplate", "--delete-datavolume-template", "DELETE_DATAVOLUME_TEMPLATE"),
			str("deleteTemplateParameters", "--delete-template-parameters", "DELETE_TEMPLATE_PARAMETERS"),
			str("deleteTemplate", "--delete-template", "DELETE_TEMPLATE"),
		),
	}
}

func waitForVMIStatus() program {
	return program{
		usage: declare.CodeUsage, task: always("wait-for-vmi-status"),
		options: common(
			str("vmiName", "--vmi-name", "VMI_NAME"), str("vmiNamespace", "--vmi-namespace", "VMI_NAMESPACE"),
			str("successCondition", "--success-condition", "SUCCESS_CONDITION"), str("failureCondition", "--failure-condition", "FAILURE_CONDITION"),
		),
	}
}

func generateSSHKeys() program {
	return program{
		usage: declare.CodeUsage, task: always("generate-ssh-keys"), rest: continued,
		options: common(
			str("publicKeySecretName", "--public-key-secret-name", "PUBLIC_KEY_SECRET_NAME"),
			str("publicKeySecretNamespace", "--public-key-secret-namespace", "PUBLIC_KEY_SECRET_NAMESPACE"),
			str("privateKeySecretName", "--private-key-secret-name", "PRIVATE_KEY_SECRET_NAME"),
			str("privateKeySecretNamespace", "--private-key-secret-namespace", "PRIVATE_KEY_SECRET_NAMESPACE"),
			str("additionalSSHKeygenOptions", "--additional-ssh-keygen-options", "ADDITIONAL_SSH_KEYGEN_OPTIONS"),
		),
	}
}

// continued joins a word without a colon to the one before it: their entrypoint splits words at
// spaces, and their program puts them together so.
func continued(words []string, r *request) {
	var items []string
	for _, word := range words {
		if len(items) > 0 && !strings.Contains(word, ":") {
			items[len(items)-1] += " " + word
			continue
		}
		items = append(items, word)
	}
	r.arrays["privateKeyConnectionOptions"] = items
}

func executeInVM() program {
	return program{
		usage: declare.CodeUsage, rest: line,
		task: func(g given) string {
			if g["--stop"] || g["--delete"] || g["--timeout"] {
				return "cleanup-vm"
			}
			return "execute-in-vm"
		},
		options: common(
			str("vmName", "--vm-name", "VM_NAME"), str("vmNamespace", "--vm-namespace", "VM_NAMESPACE"),
			str("script", "--script", "EXECUTE_SCRIPT"), str("secretName", "--connection-secret-name", "CONNECTION_SECRET_NAME"),
			str("stop", "--stop", ""), str("delete", "--delete", ""), str("timeout", "--timeout", ""),
		),
	}
}

// line makes one line for the guest's shell of command and arguments, as their program does: no
// word is quoted, and so the shell splits and expands them. Our own Tasks quote each item.
func line(words []string, r *request) {
	switch {
	case r.strings["script"] != "": // one of them is too much, which the task says
		r.arrays["command"] = words
	default:
		r.strings["script"] = strings.Join(words, " ")
	}
}

func diskVirt(task, tool string) program {
	return program{
		usage: declare.CodeUsage, task: always(task),
		offline: "the Task of kubevirt-tekton-tasks does not say which claim its disk is in; Slipway's Task " + task + " does, and uses the step cache",
		options: common(
			str("virtCommands", "--virt-commands", "VIRT_COMMANDS"), str("virtCommands", "", tool+"_COMMANDS"),
			str("additionalVirtOptions", "--additional-virt-options", "ADDITIONAL_VIRT_OPTIONS"),
			str("additionalVirtOptions", "", "ADDITIONAL_VIRT_"+tool+"_OPTIONS"),
			str("verbose", "--verbose", ""),
		),
	}
}
