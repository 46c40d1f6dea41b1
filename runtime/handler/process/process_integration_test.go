//go:build integration

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestFilesAreReadUnderTheProcesssOwnRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test uses chroot: run it as root")
	}
	root := t.TempDir()
	copyFile(t, "/bin/sleep", filepath.Join(root, "sleep"))
	libraries(t, root, "/bin/sleep")
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	// An absolute link must lead to the process's own file, not to the node's.
	if err := os.Symlink("/etc/hidden", filepath.Join(root, "etc/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/hidden"), []byte("nameserver 192.0.2.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("chroot", root, "/sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Open(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	waitForRoot(t, command.Process.Pid, root)
	resolver, err := p.Resolver()
	if err != nil || len(resolver.Nameservers) != 1 || resolver.Nameservers[0] != "192.0.2.1" {
		t.Errorf("got %+v, %v", resolver, err)
	}
	if found, err := p.GiveDevice("/dev/kvm", 107); found || err != nil {
		t.Errorf("a missing device: got %v, %v", found, err)
	}
	if _, err := p.GiveDevice("/etc/hidden", 107); err == nil {
		t.Error("a plain file was given away as a device")
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	if _, err := p.BelongsTo("x"); err == nil {
		t.Error("an ended process was still read")
	}
}

func waitForRoot(t *testing.T, pid int, root string) {
	t.Helper()
	for range 1000 {
		exe, err := os.Readlink(filepath.Join("/proc", itoa(pid), "exe"))
		if err == nil && strings.HasSuffix(exe, "/sleep") {
			return
		}
		_, _ = os.ReadDir(root) // give the child its turn
	}
	t.Fatal("the child did not come up in its root")
}

func itoa(pid int) string { return strconv.Itoa(pid) }

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// libraries copies the shared libraries of program into root.
func libraries(t *testing.T, root, program string) {
	t.Helper()
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatalf("ldd %s: %v", program, err)
	}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			copyFile(t, word, filepath.Join(root, word))
		}
	}
}
