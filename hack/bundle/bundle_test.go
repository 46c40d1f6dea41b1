package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// run runs the command as its user does, and returns what it prints.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func builtImages(t *testing.T) {
	t.Helper()
	old := index
	t.Cleanup(func() { index = old })
	index = filepath.Join(t.TempDir(), "images.json")
	text := `{"slipway":{"ref":"registry.local/slipway:1","digest":"sha256:aa"},"slipway-guestfs":{"ref":"registry.local/slipway-guestfs:2","digest":"sha256:bb"}}`
	if err := os.WriteFile(index, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is built, pushed and printed is the same, time after time.
func TestBothBundlesArePushedAsBuilt(t *testing.T) {
	builtImages(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://") + "/slipway"
	built, err := run(t, "build", "--registry", at, "--out", filepath.Join(t.TempDir(), "layout"))
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := run(t, "push", "--registry", at+"/", "--insecure", "--tag", "v1")
	if err != nil {
		t.Fatal(err)
	}
	if built != pushed {
		t.Errorf("built:\n%spushed:\n%s", built, pushed)
	}
	references := strings.Fields(pushed)
	if len(references) != 2 || !strings.HasPrefix(references[0], at+"/slipway-tasks@sha256:") || !strings.HasPrefix(references[1], at+"/slipway-pipelines@sha256:") {
		t.Fatalf("printed %q", pushed)
	}
	for n, tagged := range []string{at + "/slipway-tasks:v1", at + "/slipway-pipelines:v1"} {
		reference, err := name.ParseReference(tagged)
		if err != nil {
			t.Fatal(err)
		}
		described, err := remote.Head(reference)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(references[n], described.Digest.String()) {
			t.Errorf("%s is %s, printed %s", tagged, described.Digest, references[n])
		}
	}
}

func TestPrintedTasksHaveTheImagesThatWerePushed(t *testing.T) {
	builtImages(t)
	text, err := run(t, "print", "tasks", "--registry", "registry.example.com/slipway")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "image: registry.example.com/slipway/slipway:1@sha256:aa\n") || !strings.Contains(text, "image: registry.example.com/slipway/slipway-guestfs:2@sha256:bb\n") || strings.Contains(text, "image: ghcr.io") {
		t.Errorf("images of\n%s", text)
	}
	folder := filepath.Join(t.TempDir(), "tasks")
	if _, err := run(t, "print", "tasks", "--registry", "r.example.com", "--out", folder); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "generate-ssh-keys.yaml")); err != nil {
		t.Error(err)
	}
}

func TestWrongFlagsAreExplained(t *testing.T) {
	index = filepath.Join(t.TempDir(), "none.json")
	for want, args := range map[string][]string{
		"give --registry":        {"push"},
		"`make images`":          {"build", "--registry", "registry.example.com"},
		"under which":            {"print", "tasks"},
		"one place":              {"print", "pipelines", "--from-namespace", "a", "--from-bundle", "b"},
		"repository and version": {"print", "pipelines", "--from-hub", "slipway-tasks"},
		"the folder is missing":  {"print", "pipelines", "--from-git", "https://git.example.com/builds@main"},
	} {
		if _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one that says %q", args, err, want)
		}
	}
}
