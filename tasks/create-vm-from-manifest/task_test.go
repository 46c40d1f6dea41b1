package createvmfrommanifest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare"
)

const manifest = "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata:\n  name: vm\nspec:\n  runStrategy: Halted\n  template:\n    spec:\n      domain: {}\n"

func readWith(t *testing.T, values map[string]string) (*virtv1.VirtualMachine, error) {
	t.Helper()
	task := Task()
	var vm *virtv1.VirtualMachine
	task.Run = func(_ context.Context, call *declare.Call) error {
		var err error
		vm, err = read(call)
		return err
	}
	err := task.Execute(t.Context(), declare.Environment{
		Out: &bytes.Buffer{}, Log: slog.New(slog.DiscardHandler),
		LookupEnv: func(name string) (string, bool) { value, ok := values[name]; return value, ok },
		Connect:   func() (client.WithWatch, error) { return nil, nil },
	})
	return vm, err
}

func TestReadRefuses(t *testing.T) {
	cases := map[string]struct {
		values map[string]string
		want   string
	}{
		"neither":                  {nil, "only one of vm-manifest or virtctl should be specified: neither is"},
		"both":                     {map[string]string{"PARAM_MANIFEST": manifest, "PARAM_VIRTCTL": "--name a"}, "only one of vm-manifest or virtctl should be specified: both are"},
		"no YAML of an object":     {map[string]string{"PARAM_MANIFEST": "blabla"}, "could not read VM manifest: error unmarshaling"},
		"an unknown field":         {map[string]string{"PARAM_MANIFEST": manifest + "  color: red\n"}, `could not read VM manifest: error unmarshaling JSON: while decoding JSON: json: unknown field "color"`},
		"a wrong type":             {map[string]string{"PARAM_MANIFEST": strings.Replace(manifest, "Halted", "[]", 1)}, "could not read VM manifest: error unmarshaling"},
		"another kind":             {map[string]string{"PARAM_MANIFEST": strings.Replace(manifest, "kind: VirtualMachine", "kind: Pod", 1)}, "kubevirt.io/v1 Pod is no VirtualMachine of kubevirt.io/v1"},
		"another group":            {map[string]string{"PARAM_MANIFEST": strings.Replace(manifest, "kubevirt.io/v1", "example.com/v1", 1)}, "is no VirtualMachine"},
		"an unknown flag":          {map[string]string{"PARAM_VIRTCTL": "--name a --colour red"}, "virtctl: unknown flag: --colour"},
		"a wrong flag":             {map[string]string{"PARAM_VIRTCTL": "--memory lots"}, `virtctl: failed to parse "--memory" flag`},
		"a file of the pod":        {map[string]string{"PARAM_VIRTCTL": "--password-file /var/run/secrets/kubernetes.io/serviceaccount/token"}, "is not in the workspace: bind a Secret or ConfigMap to data01"},
		"a file beside":            {map[string]string{"PARAM_VIRTCTL": "--password-file /data01/../etc/passwd"}, "is not in the workspace"},
		"a file without workspace": {map[string]string{"PARAM_VIRTCTL": "--password-file /data01/password"}, "opening the workspace data01"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if vm, err := readWith(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v, want %q", vm, err, c.want)
			}
		})
	}
}

func TestRead(t *testing.T) {
	vm, err := readWith(t, map[string]string{"PARAM_MANIFEST": strings.Replace(manifest, "  name: vm", "  generateName: vm-\n  uid: u\n  resourceVersion: \"7\"", 1) + "status:\n  ready: true\n"})
	if err != nil || vm.GenerateName != "vm-" || vm.UID != "" || vm.ResourceVersion != "" || vm.Status.Ready {
		t.Errorf("got %+v, %v", vm, err)
	}
	blank, err := readWith(t, map[string]string{"PARAM_MANIFEST": " \n", "PARAM_VIRTCTL": "--name flags"})
	if err != nil || blank.Name != "flags" {
		t.Errorf("a blank manifest beside flags: got %+v, %v", blank, err)
	}
	// The names that flags leave out are the same in every try of a TaskRun.
	const flags = "--volume-import type:ds,src:debian --ssh-key 'ssh-ed25519 A b'"
	run := map[string]string{"PARAM_VIRTCTL": flags, "TASK_RUN_UID": "u1"}
	first, err := readWith(t, run)
	if err != nil {
		t.Fatal(err)
	}
	again, err := readWith(t, run)
	if err != nil || first.Name != again.Name || first.Spec.DataVolumeTemplates[0].Name != again.Spec.DataVolumeTemplates[0].Name {
		t.Errorf("a retry makes %s with %s, not %s, %v", again.Name, again.Spec.DataVolumeTemplates[0].Name, first.Name, err)
	}
	run["TASK_RUN_UID"] = "u2"
	if other, err := readWith(t, run); err != nil || other.Name == first.Name {
		t.Errorf("another run makes %s too, %v", other.Name, err)
	}
}
