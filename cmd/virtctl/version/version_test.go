package version

import (
	"bytes"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the requests alone.
func TestVersions(t *testing.T) {
	server := standin.Start(t)
	server.On("GET /apis/subresources.kubevirt.io/v1/version", standin.JSON(Info{GitVersion: "v1.9.0", Compiler: "gc"}))
	for flags, want := range map[string][]string{
		"":         {`Client Version: version.Info{GitVersion:"v0.1.0", `, "\n" + `Server Version: version.Info{GitVersion:"v1.9.0", GitCommit:"", GitTreeState:"", BuildDate:"", GoVersion:"", Compiler:"gc", Platform:""}` + "\n"},
		"--client": {`Client Version: version.Info{GitVersion:"v0.1.0", `},
	} {
		command := NewCommand(server, "v0.1.0")
		var out bytes.Buffer
		command.SetOut(&out)
		command.SetArgs(strings.Fields(flags))
		if err := command.Execute(); err != nil || strings.Count(out.String(), "\n") != len(want) {
			t.Errorf("%q: %v\n%s", flags, err, out.String())
		}
		for _, words := range want {
			if !strings.Contains(out.String(), words) {
				t.Errorf("%q prints\n%s\nwithout %s", flags, out.String(), words)
			}
		}
	}
}
