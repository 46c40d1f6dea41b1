//go:build integration

package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// rooted starts a process whose root is a folder of its own.
func rooted(t *testing.T) (*Process, string) {
	t.Helper()
	root := t.TempDir()
	copyFile(t, "/bin/sleep", filepath.Join(root, "sleep"))
	libraries(t, root, "/bin/sleep")
	command := exec.Command("chroot", root, "/sleep", "3600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	p, err := Open(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	waitForRoot(t, command.Process.Pid, root)
	return p, root
}

func TestABlockDeviceIsOpenedUnderTheProcesssOwnRoot(t *testing.T) {
	p, root := rooted(t)
	file := filepath.Join(t.TempDir(), "device")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", file).Output()
	if err != nil {
		t.Fatalf("making a block device (as root): %v", err)
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", loop).Run() })
	var stat unix.Stat_t
	err = errors.Join(unix.Stat(loop, &stat), os.Mkdir(filepath.Join(root, "dev"), 0o755), unix.Mknod(filepath.Join(root, "dev/data"), unix.S_IFBLK|0o600, int(stat.Rdev)),
		os.WriteFile(filepath.Join(root, "dev/file"), []byte("x"), 0o600), os.Symlink(loop, filepath.Join(root, "dev/link")))
	if err != nil {
		t.Fatal(err)
	}
	alone, err := p.OpenBlock("/dev/data", unix.O_RDWR|unix.O_EXCL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.OpenBlock("/dev/data", unix.O_RDWR|unix.O_EXCL); !errors.Is(err, ErrInUse) {
		t.Errorf("a device that somebody has alone: %v", err)
	}
	if err := alone.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/file", "/dev/link", "/dev/none"} {
		if _, err := p.OpenBlock(path, unix.O_RDWR); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
}

func TestAFolderIsGivenUnderTheProcesssOwnRoot(t *testing.T) {
	p, root := rooted(t)
	err := errors.Join(os.Mkdir(filepath.Join(root, "dev"), 0o755), os.WriteFile(filepath.Join(root, "dev/file"), []byte("x"), 0o600),
		os.Symlink("/", filepath.Join(root, "dev/link")))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.GiveFolder("/dev/fdset", 107); err != nil {
			t.Fatal(err)
		}
	}
	var stat unix.Stat_t
	if err := unix.Lstat(filepath.Join(root, "dev/fdset"), &stat); err != nil || stat.Uid != 107 || stat.Mode != unix.S_IFDIR|0o700 {
		t.Errorf("%+v, %v", stat, err)
	}
	for _, path := range []string{"/dev/file", "/dev/link"} {
		if err := p.GiveFolder(path, 107); err == nil {
			t.Errorf("%s was given away as a folder", path)
		}
	}
}
