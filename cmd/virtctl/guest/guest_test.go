package guest

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the requests alone.

const instance = "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/"

func run(t *testing.T, server *standin.Server, verb string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "virtctl", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(NewCommands(server)...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{verb, "web"})
	err := root.Execute()
	return out.String(), err
}

func TestAnswersArePrintedAsJSON(t *testing.T) {
	server := standin.Start(t)
	server.On("GET "+instance+"guestosinfo", standin.JSON(map[string]any{"guestAgentVersion": "9.2", "os": map[string]any{"name": "Debian"}}))
	server.On("GET "+instance+"userlist", standin.JSON(map[string]any{
		"apiVersion": "subresources.kubevirt.io/v1", "kind": "VirtualMachineInstanceGuestOSUserList", "metadata": map[string]any{},
		"items": []any{map[string]any{"userName": "admin", "loginTime": 1.5}},
	}))
	server.On("GET "+instance+"filesystemlist", standin.JSON(map[string]any{"items": []any{map[string]any{"diskName": "vda1", "mountPoint": "/", "fileSystemType": "ext4", "usedBytes": 1, "totalBytes": 2}}}))
	for verb, want := range map[string][]string{
		"guestosinfo": {"  \"guestAgentVersion\": \"9.2\"", "    \"name\": \"Debian\""},
		"userlist":    {"{\n  \"metadata\": {},\n  \"items\": [\n    {\n      \"userName\": \"admin\","},
		"fslist":      {"\"mountPoint\": \"/\""},
	} {
		out, err := run(t, server, verb)
		if err != nil || !strings.HasSuffix(out, "}\n") {
			t.Errorf("%s: %v\n%s", verb, err, out)
		}
		for _, words := range want {
			if !strings.Contains(out, words) {
				t.Errorf("%s prints\n%s\nwithout %s", verb, out, words)
			}
		}
	}
}

func TestAMissingAgentIsTold(t *testing.T) {
	server := standin.Start(t)
	server.On("GET "+instance+"userlist", standin.Refuse(http.StatusConflict, metav1.StatusReasonConflict, "VMI does not have guest agent connected"))
	if _, err := run(t, server, "userlist"); err == nil || err.Error() != "Error listing users of VirtualMachineInstance web, VMI does not have guest agent connected" {
		t.Errorf("got %v", err)
	}
}
