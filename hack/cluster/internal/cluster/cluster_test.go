package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
	"github.com/slipway-vm/slipway/hack/cluster/internal/process"
)

func newProgram(t *testing.T) (*Program, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	c := layout.New(t.TempDir())
	c.State = t.TempDir()
	c.Nodes[0].Dir = c.State
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	return &Program{Cluster: c, Out: out, began: time.Now()}, out
}

func TestAwaitSaysWhatIsMissingAndShowsTheLog(t *testing.T) {
	p, out := newProgram(t)
	if err := os.WriteFile(p.Cluster.Log("kubelet"), []byte("one\nit is broken\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := p.await(t.Context(), "the node", 300*time.Millisecond, "kubelet", func() string { return "its kubelet" })
	if err == nil || !strings.Contains(err.Error(), "its kubelet") || !strings.Contains(err.Error(), "it is broken") {
		t.Errorf("error %v, want what is missing and the log's end", err)
	}
	if !strings.Contains(out.String(), "waiting for the node: its kubelet") {
		t.Errorf("said %q, want what is awaited", out)
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	p, _ := newProgram(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.await(ctx, "it", time.Minute, "", func() string { return "all" }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestImageTable(t *testing.T) {
	got := parseImages("REF TYPE DIGEST SIZE PLATFORMS LABELS\nregistry.local/x:1 application/vnd.oci.image.manifest.v1+json sha256:aa 1 MiB linux/amd64 -\n")
	if len(got) != 1 || got["registry.local/x:1"] != "sha256:aa" {
		t.Errorf("images %v", got)
	}
}

func TestFailingChecksAreNamed(t *testing.T) {
	err := errors.New("status 500: [+]ping ok\n[-]etcd failed: reason withheld\n[-]informer-sync failed: reason withheld\n")
	if got := notReady(err); got != "etcd, informer-sync" {
		t.Errorf("missing %q", got)
	}
	if got := notReady(nil); got != "" {
		t.Errorf("missing %q of a ready server", got)
	}
}

func TestComponentInputsFollowItsFiles(t *testing.T) {
	p, _ := newProgram(t)
	inputs := func(files map[string]string) map[string]string {
		if err := p.writeComponents(files); err != nil {
			t.Fatal(err)
		}
		components, err := ReadComponents(p.Cluster)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, c := range components {
			found[c.Name] = c.Inputs
		}
		return found
	}
	file := p.Cluster.First().Conf("kubelet.yaml")
	before, after := inputs(map[string]string{file: "a"}), inputs(map[string]string{file: "b"})
	if before["kubelet"] == after["kubelet"] {
		t.Error("the kubelet's file changed and its inputs did not")
	}
	if before["etcd"] != after["etcd"] {
		t.Error("etcd's inputs changed with the kubelet's file")
	}
}

func TestReadsItsOwnFilesOnly(t *testing.T) {
	c := process.Component{Command: []string{"x", "--config=/a/b.yaml"}}
	if !reads(c, "/a/b.yaml") || reads(c, "/b.yaml") || reads(c, "/a/b.yaml.new") {
		t.Error("files on a command line are not told apart")
	}
}
