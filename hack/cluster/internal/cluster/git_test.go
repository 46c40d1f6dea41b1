package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/hack/cluster/internal/image"
)

func TestLibrariesAreThoseThatLddFound(t *testing.T) {
	answer := `/usr/bin/git:
	linux-vdso.so.1 (0x00007ffd)
	libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f01)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f02)
	/lib64/ld-linux-x86-64.so.2 (0x00007f03)
/usr/lib/git-core/git-remote-http:
	libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f04)
`
	want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libz.so.1", "/lib64/ld-linux-x86-64.so.2"}
	if got := libraries(answer); !slices.Equal(got, want) {
		t.Errorf("libraries %q, want %q", got, want)
	}
}

// In a root folder with nothing but these files, git and its HTTP transport start.
func TestGitNeedsNothingElse(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil || os.Geteuid() != 0 {
		if os.Getenv("SLIPWAY_REQUIRE") == "1" {
			t.Fatal("needs git and root: install git, run as root")
		}
		t.Skip("needs git and root")
	}
	files, key, err := gitFiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again, same, err := gitFiles(t.Context()); err != nil || same != key || len(again) != len(files) {
		t.Errorf("the same files have keys %s and %s (%v)", key, same, err)
	}
	root := t.TempDir()
	// Every container has this one; here an empty file is enough.
	for _, file := range append(files, image.File{Path: "/dev/null", Mode: 0o666}) {
		place(t, root, file)
	}
	out, err := exec.CommandContext(t.Context(), "chroot", root, "/usr/bin/git", "ls-remote", "http://127.0.0.1:9/none.git").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Failed to connect to 127.0.0.1") {
		t.Errorf("git ls-remote of a port where nobody listens: %v: %s", err, out)
	}
}

func place(t *testing.T, root string, file image.File) {
	t.Helper()
	path := filepath.Join(root, file.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if file.Link != "" {
		if err := os.Symlink(file.Link, path); err != nil {
			t.Fatal(err)
		}
		return
	}
	data := file.Data
	if file.Source != "" {
		var err error
		if data, err = os.ReadFile(file.Source); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, data, os.FileMode(file.Mode)); err != nil {
		t.Fatal(err)
	}
}
