package objectgraph

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the requests alone.

const group = "/apis/subresources.kubevirt.io/v1/namespaces/shop/"

func run(server *standin.Server, line string) (string, error) {
	command := NewCommand(server)
	command.SilenceErrors, command.SilenceUsage = true, true
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetArgs(strings.Fields(line))
	err := command.Execute()
	return out.String(), err
}

func TestTheTreeIsAskedForAndPrinted(t *testing.T) {
	root := virtv1.ObjectGraphNode{Labels: map[string]string{"kubevirt.io/dependency-type": "compute"}}
	root.ObjectReference.Kind, root.ObjectReference.Name = "VirtualMachine", "web"
	for line, c := range map[string]struct{ request, prints string }{
		"web":                     {group + `virtualmachines/web/objectgraph {"includeOptionalNodes":true}`, "    \"kind\": \"VirtualMachine\""},
		"web --vmi --output yaml": {group + `virtualmachineinstances/web/objectgraph {"includeOptionalNodes":true}`, "  kind: VirtualMachine\n"},
		"web --exclude-optional --selector a=b,c=d": {group + `virtualmachines/web/objectgraph {"includeOptionalNodes":false,"labelSelector":{"matchLabels":{"a":"b","c":"d"}}}`, "dependency-type"},
	} {
		t.Run(line, func(t *testing.T) {
			server := standin.Start(t)
			server.On("GET "+group+"virtualmachines/web/objectgraph", standin.JSON(root))
			server.On("GET "+group+"virtualmachineinstances/web/objectgraph", standin.JSON(root))
			out, err := run(server, line)
			if err != nil || !strings.Contains(out, c.prints) {
				t.Errorf("%v, printed\n%s", err, out)
			}
			if !slices.Equal(server.Seen(), []string{"GET " + c.request}) {
				t.Errorf("asked %q, want %q", server.Seen(), c.request)
			}
		})
	}
}

func TestRefusalsAreTold(t *testing.T) {
	server := standin.Start(t)
	server.On("GET "+group+"virtualmachines/web/objectgraph", standin.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "no such VM"))
	if _, err := run(server, "web"); err == nil || err.Error() != "error listing object graph of VirtualMachine web: no such VM" {
		t.Errorf("got %v", err)
	}
	if _, err := run(server, "web --output xml"); err == nil || !strings.Contains(err.Error(), "unsupported output format: xml") {
		t.Errorf("got %v", err)
	}
}
