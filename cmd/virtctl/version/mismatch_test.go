package version

import (
	"bytes"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// asked is a cluster that a verb asked, or not.
type asked struct {
	*standin.Server
	was bool
}

func (a asked) Asked() bool { return a.was }

func TestAVerbThatFailsTellsOfAnotherVersion(t *testing.T) {
	failure := errors.New("it does not work")
	away := standin.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "virt-api is away")
	of := func(version string) http.HandlerFunc { return standin.JSON(Info{GitVersion: version}) }
	for name, c := range map[string]struct {
		program string
		server  http.HandlerFunc
		err     error
		idle    bool
		warns   bool
	}{
		"another minor version":        {program: "v1.8.2", server: of("v1.9.0"), err: failure, warns: true},
		"another major version":        {program: "v2.9.0-3-gabcdef0", server: of("v1.9.0"), err: failure, warns: true},
		"another patch":                {program: "v1.9.4", server: of("v1.9.0-rc.0"), err: failure},
		"it works":                     {program: "v1.8.2", server: of("v1.9.0")},
		"the cluster does not answer":  {program: "v1.8.2", server: away, err: failure},
		"a cluster without a number":   {program: "v1.8.2", server: of("devel"), err: failure},
		"a program without a number":   {program: "devel", server: of("v1.9.0"), err: failure},
		"nothing was asked of it":      {program: "v1.8.2", server: of("v1.9.0"), err: failure, idle: true},
		"what failed is local program": {program: "v1.8.2", server: of("v1.9.0"), err: &exec.ExitError{}},
	} {
		t.Run(name, func(t *testing.T) {
			server := standin.Start(t)
			server.On("GET /apis/subresources.kubevirt.io/v1/version", c.server)
			root := &cobra.Command{Use: "virtctl", SilenceErrors: true, SilenceUsage: true}
			group := &cobra.Command{Use: "group"}
			group.AddCommand(&cobra.Command{Use: "verb", RunE: func(*cobra.Command, []string) error { return c.err }})
			root.AddCommand(group)
			warnWithin(5*time.Minute, root, asked{server, !c.idle}, c.program)
			var out, said bytes.Buffer
			root.SetOut(&out)
			root.SetErr(&said)
			root.SetArgs([]string{"group", "verb"})
			if err := root.ExecuteContext(t.Context()); !errors.Is(err, c.err) {
				t.Errorf("it ended with %v", err)
			}
			want := ""
			if c.warns {
				want = "You are using a client virtctl version that is different from the KubeVirt version running in the cluster\nClient Version: " + c.program + "\nServer Version: v1.9.0\n\n"
			}
			if said.String() != want || out.Len() != 0 {
				t.Errorf("it said %q, want %q; it printed %q", &said, want, &out)
			}
			if asks := strings.Contains(strings.Join(server.Seen(), " "), "version"); asks && (c.idle || c.program == "devel") {
				t.Error("the cluster was asked for nothing")
			}
		})
	}
}
