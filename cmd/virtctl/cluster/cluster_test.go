package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: test, user: {}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: shop}}]
`

func access(t *testing.T, args ...string) *Access {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	flags := pflag.NewFlagSet("virtctl", pflag.ContinueOnError)
	a := NewAccess(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return a
}

// The namespace is the flag's, or else the context's; only the flag's counts as given.
func TestNamespace(t *testing.T) {
	for args, want := range map[string][2]string{"": {"", "shop"}, "-n builds": {"builds", "builds"}, "--namespace=builds": {"builds", "builds"}} {
		a := access(t, strings.Fields(args)...)
		if got, err := a.Namespace(); err != nil || got != want[1] || a.GivenNamespace() != want[0] {
			t.Errorf("%q: given %q, in all %q, %v; want %q", args, a.GivenNamespace(), got, err, want)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	a := access(t, "--kubeconfig", "/nonexistent")
	if _, err := a.Namespace(); err == nil || !strings.Contains(err.Error(), "set KUBECONFIG or --kubeconfig, or --namespace") {
		t.Errorf("%v", err)
	}
	if _, err := a.Client(); err == nil || !strings.Contains(err.Error(), "finding the cluster: stat /nonexistent") {
		t.Errorf("%v", err)
	}
	if _, err := access(t, "--context", "other").Client(); err == nil || !strings.Contains(err.Error(), `context "other" does not exist`) {
		t.Errorf("%v", err)
	}
}
