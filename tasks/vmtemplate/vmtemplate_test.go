package vmtemplate

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestPairs(t *testing.T) {
	got, err := Pairs([]string{" NAME:vm", "MOTD:hello", "dear", ":)", "URL:http://x:8080/", "EMPTY:"})
	want := map[string]string{"NAME": "vm", "MOTD": "hello dear :)", "URL": "http://x:8080/", "EMPTY": ""}
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"V1", ":V1"} {
		want := `no key found before "` + bad + `"; pair should be in "KEY:VAL" format`
		if _, err := Pairs([]string{bad, "K:V"}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", bad, err, want)
		}
	}
}

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
