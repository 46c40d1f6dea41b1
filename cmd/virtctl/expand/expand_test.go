package expand

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the requests alone.

const prefix = "/apis/subresources.kubevirt.io/v1/namespaces/shop/"

func run(server *standin.Server, stdin string, args ...string) (string, error) {
	command := NewCommand(server)
	command.SilenceErrors, command.SilenceUsage = true, true
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetIn(strings.NewReader(stdin))
	command.SetArgs(args)
	err := command.Execute()
	return out.String(), err
}

func TestExpand(t *testing.T) {
	server := standin.Start(t)
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	vm.Spec.RunStrategy = new(virtv1.RunStrategyManual)
	server.On("GET "+prefix+"virtualmachines/web/expand-spec", standin.JSON(vm))
	server.On("PUT "+prefix+"expand-vm-spec", standin.JSON(vm))
	for _, args := range [][]string{{"--vm", "web"}, {"--file", "-"}} {
		out, err := run(server, "metadata: {name: web}", args...)
		if err != nil || !strings.HasPrefix(out, "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n") || !strings.Contains(out, "runStrategy: Manual") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	seen := server.Seen()
	if last := seen[len(seen)-1]; !strings.HasPrefix(last, "PUT "+prefix+"expand-vm-spec {") || !strings.Contains(last, `"name":"web"`) {
		t.Errorf("the file was sent as %s", last)
	}
	if out, err := run(server, "", "--vm", "web", "-o", "json"); err != nil || !strings.HasPrefix(out, "{\n \"kind\": \"VirtualMachine\",\n \"apiVersion\": \"kubevirt.io/v1\",") {
		t.Errorf("%v\n%s", err, out)
	}
	for words, want := range map[string]string{
		"":                      "error invalid arguments - VirtualMachine name or file must be provided",
		"--vm web -o xml":       "error not supported output format defined: xml",
		"--vm web --file a":     "none of the others can be",
		"--vm other":            "error expanding VirtualMachine - other in namespace - shop: ",
		"--file /nowhere/a.yml": "error reading file open /nowhere/a.yml",
	} {
		if _, err := run(server, "", strings.Fields(words)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", words, err, want)
		}
	}
}
