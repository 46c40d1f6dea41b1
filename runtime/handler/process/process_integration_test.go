//go:build integration

package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	command := exec.Command("chroot", root, "/sleep", "3600")
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
	onlyMountsAreOpened(t, p, root)
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	if _, err := p.BelongsTo("x"); err == nil {
		t.Error("an ended process was still read")
	}
}

// onlyMountsAreOpened plays a pod that puts what it likes in place of the folder that is mounted for it.
func onlyMountsAreOpened(t *testing.T, p *Process, root string) {
	t.Helper()
	private := filepath.Join(root, "private")
	disks, folder := filepath.Join(private, "vmi-disks"), filepath.Join(private, "vmi-disks", "data")
	if err := errors.Join(os.MkdirAll(folder, 0o777), os.MkdirAll(filepath.Join(private, "other"), 0o777)); err != nil {
		t.Fatal(err)
	}
	open := func() error {
		file, err := p.OpenMount("/private", "vmi-disks/data")
		if err == nil {
			err = file.Close()
		}
		return err
	}
	if err := open(); err == nil || !strings.Contains(err.Error(), "nothing is mounted there") {
		t.Errorf("a folder of the pod's own: %v", err)
	}
	if err := unix.Mount("node", folder, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	at := folder
	defer func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	if err := open(); err != nil {
		t.Errorf("what is mounted: %v", err)
	}
	if err := os.Rename(disks, filepath.Join(private, "away")); err != nil {
		t.Fatal(err)
	}
	at = filepath.Join(private, "away", "data")
	for name, put := range map[string]func() error{
		"a link to a folder with the mount": func() error { return os.Symlink("away", disks) },
		"a folder with a link to the mount": func() error {
			return errors.Join(os.Mkdir(disks, 0o777), os.Symlink("../away/data", folder))
		},
		"a folder of its own": func() error { return os.MkdirAll(folder, 0o777) },
		"nothing":             func() error { return nil },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if err := open(); err == nil {
			t.Errorf("%s was opened", name)
		}
		if err := os.RemoveAll(disks); err != nil {
			t.Fatal(err)
		}
	}
}

func waitForRoot(t *testing.T, pid int, root string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		exe, err := os.Readlink(filepath.Join("/proc", itoa(pid), "exe"))
		if err == nil && strings.HasSuffix(exe, "/sleep") {
			return
		}
	}
	t.Fatalf("the child did not come up in its root %s", root)
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
