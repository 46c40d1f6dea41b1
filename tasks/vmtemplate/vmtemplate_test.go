package vmtemplate

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestVirtualMachine(t *testing.T) {
	vm := map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}
	other := map[string]any{"apiVersion": "example.com/v1", "kind": "VirtualMachine"}
	cases := map[string]struct {
		object map[string]any
		found  bool
	}{
		"among objects":             {map[string]any{"kind": "Template", "objects": []any{other, vm}}, true},
		"no VirtualMachine":         {map[string]any{"kind": "Template", "objects": []any{other}}, false},
		"no objects":                {map[string]any{"kind": "Template"}, false},
		"in the spec":               {map[string]any{"kind": "VirtualMachineTemplate", "spec": map[string]any{"virtualMachine": vm}}, true},
		"a spec without one":        {map[string]any{"kind": "VirtualMachineTemplate", "spec": map[string]any{}}, false},
		"objects of the other kind": {map[string]any{"kind": "VirtualMachineTemplate", "objects": []any{vm}}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tree, err := VirtualMachine(&unstructured.Unstructured{Object: c.object})
			switch {
			case c.found && (err != nil || tree["apiVersion"] != "kubevirt.io/v1"):
				t.Errorf("got %v, %v", tree, err)
			case !c.found && (err == nil || !strings.Contains(err.Error(), "no VM object found")):
				t.Errorf("got %v, %v", tree, err)
			}
		})
	}
}

func TestCheckKind(t *testing.T) {
	for _, good := range []string{"", KindTemplate, KindVirtualMachineTemplate} {
		if err := CheckKind(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	if err := CheckKind("template"); err == nil {
		t.Error("a kind that is none was taken")
	}
}
