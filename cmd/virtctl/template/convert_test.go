package template

import (
	"os"
	"strings"
	"testing"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// The Template is the same from the cluster, a file and standard input.
func TestConvert(t *testing.T) {
	data, err := os.ReadFile(osTemplate)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, "template.openshift.io/v1", osTemplate)
	for _, line := range []string{"convert debian", "convert --name debian", "convert -f " + osTemplate, "convert -f -"} {
		out, told, err := run(t, c, string(data), line)
		if err != nil || told != "" {
			t.Fatalf("%s: %v, it told %s", line, err, told)
		}
		fixture.Golden(t, vmTemplate, out)
		strictly(t, out, &vmtemplatev1beta1.VirtualMachineTemplate{})
	}
	out, _, err := run(t, c, "", "convert debian -o json")
	if err != nil || !strings.HasPrefix(out, "{\n \"kind\"") {
		t.Errorf("%v\n%s", err, out)
	}
}

// What convert prints is processed to the VM that it would have been.
func TestConvertAndProcess(t *testing.T) {
	converted, _, err := run(t, unreachable, "", "convert -f "+osTemplate)
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := run(t, unreachable, converted, "process -f - -p NAME=web,TEAM=shop,CORES=2")
	if err != nil {
		t.Fatal(err)
	}
	fixture.Golden(t, "testdata/vm.yaml", out)
}

func TestConvertRefuses(t *testing.T) {
	c := newCluster(t, "template.openshift.io/v1", osTemplate)
	of := func(objects string) string {
		return "convert -f " + file(t, "apiVersion: template.openshift.io/v1\nkind: Template\nmetadata: {name: t}\nobjects: ["+objects+"]\n")
	}
	for line, want := range map[string]string{
		"convert":                       "name or file must be provided",
		"convert a --name b":            "leave out --name",
		"convert debian -o wide":        `--output: "wide" is not known; write yaml or json`,
		"convert none":                  `reading Template catalog/none: templates.template.openshift.io "none" not found`,
		"convert -f " + vmTemplate:      "holds VirtualMachineTemplate of template.kubevirt.io/v1beta1, and not Template of template.openshift.io; it needs no conversion: process it",
		of(""):                          "converting Template t: template must contain exactly one object, found 0",
		of("{kind: A}, {kind: B}"):      "template must contain exactly one object, found 2; leave the VirtualMachine in it",
		of("{apiVersion: v1, kind: A}"): "objects[0]: it is no VirtualMachine of kubevirt.io, and a VirtualMachineTemplate holds nothing else",
		"convert -f " + file(t, "apiVersion: template.openshift.io/v1\nkind: Template\ncolour: red\n"): `unknown field "colour"`,
	} {
		refused(t, c, line, want)
	}
	refused(t, newCluster(t, ""), "convert debian", "this cluster does not serve that kind (template.openshift.io)")
}
