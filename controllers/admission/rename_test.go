package admission

import (
	"strings"
	"testing"
)

// What a VM that is being renamed was copied from stays as it is; that it is being renamed, and what
// is written to its metadata, does not concern admission.
func TestTheSpecOfAVMThatIsBeingRenamedStays(t *testing.T) {
	vm := func(annotation, strategy string) []byte {
		return []byte("metadata: {name: x, namespace: prod, annotations: {" + annotation + "}}\nspec:\n  runStrategy: " + strategy +
			"\n  template: {spec: {domain: {memory: {guest: 1Gi}, devices: {}}}}\n")
	}
	const leaving, plain = "slipway-vm.github.io/rename-to: shop", "a: b"
	for name, c := range map[string]struct {
		old, object []byte
		want        string
	}{
		"a VM that stays is changed":           {vm(plain, "Halted"), vm(plain, "Always"), ""},
		"a VM is to be renamed":                {vm(plain, "Halted"), vm(leaving, "Halted"), ""},
		"metadata of one that is being so":     {vm(leaving, "Halted"), vm(leaving+", a: b", "Halted"), ""},
		"it is taken back":                     {vm(leaving, "Halted"), vm(plain, "Halted"), ""},
		"one that is being renamed is changed": {vm(leaving, "Halted"), vm(leaving, "Always"), "spec: Forbidden: the VirtualMachine is being renamed; change shop when that is done"},
	} {
		t.Run(name, func(t *testing.T) {
			response := ask(t, "/virtualmachines-validate", c.object, c.old, "jane")
			if response.Allowed != (c.want == "") || c.want != "" && !strings.Contains(response.Result.Message, c.want) {
				t.Errorf("got %v %+v, want %q", response.Allowed, response.Result, c.want)
			}
		})
	}
}
