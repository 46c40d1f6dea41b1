package template

import (
	"encoding/json"
	"strings"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture"
)

const (
	vmTemplate = "testdata/vmtemplate.yaml" // what convert makes of the other
	osTemplate = "testdata/template.yaml"
	v1beta1    = "template.kubevirt.io/v1beta1"
	v1alpha1   = "template.kubevirt.io/v1alpha1"
)

// The template is the same from the cluster and from a file, and so is the VM.
func TestProcess(t *testing.T) {
	c := newCluster(t, v1beta1, vmTemplate)
	values := file(t, "NAME: web\nTEAM: shop\nCORES: \"2\"\n")
	for _, line := range []string{
		"process debian -p NAME=web -p TEAM=shop -p CORES=2",
		"process --name debian --local -p NAME=web,TEAM=shop,CORES=2",
		"process --name debian --params-file " + values,
		"process -f " + vmTemplate + " --local --params-file " + values,
	} {
		out, told, err := run(t, c, "", line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		fixture.Golden(t, "testdata/vm.yaml", out)
		if want := "Warning: nothing in the template refers to the parameter SPARE\nweb is made.\n"; told != want {
			t.Errorf("it told %q, want %q", told, want)
		}
		strictly(t, out, &virtv1.VirtualMachine{})
	}
	out, _, err := run(t, unreachable, "", "process -o json -p TEAM=shop -f "+vmTemplate)
	var vm virtv1.VirtualMachine
	if err := json.Unmarshal([]byte(out), &vm); err != nil || !strings.HasPrefix(vm.Name, "vm-") || !strings.HasPrefix(out, "{\n \"") {
		t.Errorf("%v\n%s", err, out)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestProcessPrintsParameters(t *testing.T) {
	out, told, err := run(t, unreachable, "", "process --print-params -f "+vmTemplate)
	if err != nil || told != "" {
		t.Errorf("%v, it told %s", err, told)
	}
	fixture.Golden(t, "testdata/parameters.yaml", out)
}

func TestProcessCreates(t *testing.T) {
	c := newCluster(t, v1beta1, vmTemplate)
	out, told, err := run(t, c, "", "process debian -p NAME=web -p TEAM=shop --create")
	if err != nil || out != "virtualmachine.kubevirt.io/web created\n" || !strings.HasSuffix(told, "web is made.\n") {
		t.Errorf("%v\n%s%s", err, out, told)
	}
	var vm virtv1.VirtualMachine
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "catalog", Name: "web"}, &vm); err != nil || vm.Labels["team"] != "shop" {
		t.Errorf("%v, %+v", err, vm.ObjectMeta)
	}
	if _, _, err := run(t, c, "", "process debian -p NAME=web -p TEAM=shop --create"); err == nil || !strings.Contains(err.Error(), `creating VirtualMachine catalog/web: virtualmachines.kubevirt.io "web" already exists`) {
		t.Errorf("%v", err)
	}
}

// An older cluster serves v1alpha1 alone; one without the kind says so.
func TestProcessVersions(t *testing.T) {
	old := object(t, vmTemplate)
	old.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind().GroupKind().WithVersion("v1alpha1"))
	c := newCluster(t, v1alpha1)
	if err := c.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if out, _, err := run(t, c, "", "process debian -p TEAM=shop"); err != nil || !strings.Contains(out, "team: shop") {
		t.Errorf("%v\n%s", err, out)
	}
	refused(t, newCluster(t, ""), "process debian", "reading VirtualMachineTemplate catalog/debian: this cluster does not serve that kind (template.kubevirt.io); give the template with --file")
	refused(t, newCluster(t, v1beta1), "process debian", `"debian" not found`)
	refused(t, unreachable, "process debian", "no cluster")
}

func TestProcessRefuses(t *testing.T) {
	c := newCluster(t, v1beta1, vmTemplate)
	from := "process -f " + vmTemplate + " "
	for line, want := range map[string]string{
		"process":                                   "name or file must be provided",
		"process a b":                               "accepts at most 1 arg(s), received 2",
		"process a --name b":                        "provide name either from positional argument or from flag: leave out --name",
		"process a -f b":                            "only one of name or file can be provided: leave out the argument, or --file",
		"process --name a -f b":                     "[file name] were all set",
		"process debian --create --local":           "[create local] were all set",
		"process debian --create --print-params":    "[create print-params] were all set",
		from + "--create":                           "[create file] were all set",
		from + "-p A=b --params-file c":             "[param params-file] were all set",
		from + "-o xml":                             `--output: "xml" is not known; write yaml or json`,
		from + "-p NAME":                            "NAME must be formatted as key=value",
		from:                                        "give a --param NAME=VALUE for each parameter that has no value: template debian",
		from + "-p TEAM=a -p COLOUR=red":            "it has no parameter COLOUR; it has CORES, NAME, SPARE, TEAM",
		from + "-p TEAM=a -p CORES=many":            "reading the VirtualMachine of VirtualMachineTemplate debian",
		from + "--params-file /nowhere":             "--params-file: open /nowhere",
		from + "--params-file " + file(t, "A: [1]"): `write NAME: "value" lines, numbers in quotes`,
		"process -f /nowhere":                       "--file: open /nowhere",
		"process -f -":                              "--file: reading standard input: it holds no object",
		"process -f " + osTemplate:                  "holds Template of template.openshift.io/v1, and not VirtualMachineTemplate of template.kubevirt.io; convert it first, as in: virtctl template convert -f FILE",
		"process -f " + file(t, "a: b"):             "holds an object without a kind of no group",
		"process -f " + file(t, "a: [b"):            "yaml: line 1",
		"process -f " + file(t, "a: b\n---\nc: d"):  "it holds more than one object",
		"process -f " + file(t, "apiVersion: template.kubevirt.io/v1beta1\nkind: VirtualMachineTemplate\nspec: {objects: []}"): `unknown field "objects"`,
	} {
		refused(t, c, line, want)
	}
}
