//go:build integration

package vmi

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/process"
	"github.com/slipway-vm/slipway/runtime/volume"
)

// The launcher is a process with a root of its own, where an image is mounted as the kubelet does.
func TestADiskIsOpenedInAnImageThatIsMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test uses chroot: run it as root")
	}
	root, image := t.TempDir(), t.TempDir()
	images := filepath.Join(root, names.LauncherImagesDir)
	write(t, filepath.Join(image, "disk/disk.img"), "of the image")
	write(t, filepath.Join(image, "boot/vmlinuz"), "a kernel")
	write(t, filepath.Join(images, "own/disk/disk.img"), "of the launcher")
	if err := os.Symlink("/etc/passwd", filepath.Join(image, "out")); err != nil {
		t.Fatal(err)
	}
	mounted := filepath.Join(images, "root")
	if err := os.MkdirAll(mounted, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(image, mounted, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mounted, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	launcher := launcherIn(t, root)
	for name, c := range map[string]struct {
		file      volume.ImageFile
		want      string
		wantError string
	}{
		"the only file under /disk":   {volume.ImageFile{Folder: "root"}, "of the image", ""},
		"a file by its path":          {volume.ImageFile{Folder: "root", Path: "/boot/vmlinuz"}, "a kernel", ""},
		"a link out of the image":     {volume.ImageFile{Folder: "root", Path: "/out"}, "", "escapes"},
		"a path out of the image":     {volume.ImageFile{Folder: "root", Path: "../own/disk/disk.img"}, "", "escapes"},
		"a folder of the launcher's":  {volume.ImageFile{Folder: "own"}, "", "nothing is mounted there"},
		"an image that is not there":  {volume.ImageFile{Folder: "none"}, "", "no such file"},
		"a file that the image lacks": {volume.ImageFile{Folder: "root", Path: "/boot/initrd"}, "", "has no file /boot/initrd"},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := openImage(launcher, c.file)
			if c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Errorf("got %v, want %s", err, c.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if got, err := io.ReadAll(file); err != nil || string(got) != c.want {
				t.Errorf("read %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// launcherIn starts a process with that root.
func launcherIn(t *testing.T, root string) *process.Process {
	t.Helper()
	libraries, err := exec.Command("ldd", "/bin/sleep").Output()
	if err != nil {
		t.Fatalf("ldd: %v", err)
	}
	for file := range strings.FieldsSeq("/bin/sleep " + string(libraries)) {
		if !strings.HasPrefix(file, "/") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, file), string(content))
	}
	command := &exec.Cmd{Path: "/bin/sleep", Args: []string{"sleep", "600"}, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Chroot: root}}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
	})
	launcher, err := process.Open(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = launcher.Close() })
	return launcher
}
