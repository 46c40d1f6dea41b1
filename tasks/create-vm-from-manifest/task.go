// Package createvmfrommanifest creates a VirtualMachine from a manifest, or from the flags of
// virtctl create vm.
package createvmfrommanifest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/createvm"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/newvm"
	"github.com/slipway-vm/slipway/tasks/once"
)

// filesDir is where the task's workspace is, from which --password-file may read.
const filesDir = "/data01"

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "create-vm-from-manifest",
		Title:   "Create a VM from a manifest",
		Summary: "Creates a VirtualMachine from a YAML manifest, or from the flags of virtctl create vm.",
		Details: `
Exactly one of manifest and virtctl is given. The manifest is read strictly: a field that a VirtualMachine does not have is an error.
Its name may be generated (generateName).

virtctl takes every flag of "virtctl create vm", with the quotes of a shell: --name web --volume-import type:ds,src:debian --user admin
--ssh-key 'ssh-ed25519 AAAA… me@here'. An unknown flag is an error that names it. --password-file reads from the workspace data01 only:
bind a Secret to it and write --password-file /data01/password.
` + newvm.Details + `

Exit codes: ` + newvm.Codes + `

Flags of virtctl:

` + flagTable(),
		Image:      declare.Slipway,
		ClientCode: newvm.CodeGeneric,
		Data:       1,
		Params: append([]declare.Param{
			{Name: "manifest", Description: "YAML of the VirtualMachine.", Kind: "resource-yaml", Object: declare.VirtualMachine},
			{Name: "virtctl", Description: "Flags of virtctl create vm, instead of a manifest."},
			{Name: "namespace", Description: "Namespace of the VirtualMachine; by default the manifest's, or the TaskRun's.", Kind: "namespace"},
		}, newvm.Params()...),
		Results: newvm.Results(),
		Rules:   newvm.Rules(),
		Examples: []declare.Example{
			{
				Title: "From a manifest",
				Params: map[string]any{"startVM": "true", "manifest": `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  generateName: example-
spec:
  runStrategy: Halted
  template:
    spec:
      domain:
        memory:
          guest: 512Mi
        devices:
          disks:
          - name: root
            disk:
              bus: virtio
      volumes:
      - name: root
        containerDisk:
          image: quay.io/containerdisks/debian:12
`},
			},
			{
				Title: "With the flags of virtctl",
				Params: map[string]any{
					"virtctl": "--name web --run-strategy Halted --memory 1Gi\n--volume-import type:ds,src:debian,size:5Gi\n--user admin --ssh-key 'ssh-ed25519 AAAA… admin@example'\n",
				},
			},
		},
		Run: run,
	}
}

// flagTable lists the flags of virtctl create vm.
func flagTable() string {
	var b strings.Builder
	b.WriteString("| flag | type | meaning |\n|---|---|---|\n")
	for _, f := range createvm.Flags() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Name, f.Type, strings.ReplaceAll(f.Usage, "\n", "<br>"))
	}
	return b.String()
}

func run(ctx context.Context, call *declare.Call) error {
	vm, err := read(call)
	if err != nil {
		return newvm.Usage(err)
	}
	vm.Namespace = call.NamespaceOr("namespace", vm.Namespace)
	return newvm.Create(ctx, call, vm, nil)
}

// read makes the VM that the parameters describe.
func read(call *declare.Call) (*virtv1.VirtualMachine, error) {
	manifest, flags := call.String("manifest"), call.String("virtctl")
	if given := strings.TrimSpace(manifest) != ""; given == (strings.TrimSpace(flags) != "") {
		problem := "both are"
		if !given {
			problem = "neither is"
		}
		return nil, errors.New("only one of vm-manifest or virtctl should be specified: " + problem + "; set the parameter manifest, or the parameter virtctl")
	}
	if strings.TrimSpace(manifest) != "" {
		return decode(manifest)
	}
	return build(call, flags)
}

// decode reads a manifest strictly.
func decode(manifest string) (*virtv1.VirtualMachine, error) {
	vm := &virtv1.VirtualMachine{}
	if err := yaml.UnmarshalStrict([]byte(manifest), vm); err != nil {
		return nil, fmt.Errorf("could not read VM manifest: %w", err)
	}
	group, _, _ := strings.Cut(vm.APIVersion, "/")
	if group != virtv1.SchemeGroupVersion.Group && vm.APIVersion != "" || vm.Kind != virtv1.VirtualMachineGroupVersionKind.Kind && vm.Kind != "" {
		return nil, fmt.Errorf("could not read VM manifest: %s %s is no VirtualMachine of %s", vm.APIVersion, vm.Kind, virtv1.SchemeGroupVersion)
	}
	vm.APIVersion, vm.Kind = virtv1.SchemeGroupVersion.String(), virtv1.VirtualMachineGroupVersionKind.Kind
	vm.Status = virtv1.VirtualMachineStatus{}
	vm.ResourceVersion, vm.UID, vm.ManagedFields = "", "", nil // of the VM that the manifest was taken from
	return vm, nil
}

// build makes the VM that the flags ask for. Generated names are the same in every try of the TaskRun.
func build(call *declare.Call, flags string) (*virtv1.VirtualMachine, error) {
	generated := 0
	options := &createvm.Options{
		Suffix:   func() string { generated++; return once.Suffix(call.TaskRunUID, generated) },
		ReadFile: readFile,
	}
	if err := options.Parse(flags); err != nil {
		return nil, fmt.Errorf("virtctl: %w", err)
	}
	vm, warnings, err := options.VM()
	if err != nil {
		return nil, fmt.Errorf("virtctl: %w", err)
	}
	for _, warning := range warnings {
		call.Log.Warn(warning)
	}
	return vm, nil
}

// readFile reads a file of the workspace, and no other: the pod's token is none of the VM's business.
func readFile(path string) ([]byte, error) {
	name, err := filepath.Rel(filesDir, path)
	if err != nil || !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%s is not in the workspace: bind a Secret or ConfigMap to data01 and write %s/NAME", path, filesDir)
	}
	root, err := os.OpenRoot(filesDir)
	if err != nil {
		return nil, fmt.Errorf("opening the workspace data01, to which a Secret or ConfigMap is to be bound: %w", err)
	}
	defer root.Close()
	data, err := root.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading it from the workspace data01: %w", err)
	}
	return data, nil
}
