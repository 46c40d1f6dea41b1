//go:build integration

package launcher_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/overhead"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// mounting is a guest that mounts a ConfigMap named settings and a claim named work.
func mounting() *v1.VirtualMachineInstance {
	vmi := guest()
	vmi.Spec.Volumes = append(vmi.Spec.Volumes,
		v1.Volume{Name: "settings", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}},
		v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "w"}}})
	vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{
		{Name: "settings", Virtiofs: &v1.FilesystemVirtiofs{}}, {Name: "work", Virtiofs: &v1.FilesystemVirtiofs{}},
	}
	return vmi
}

// config is the folder of a ConfigMap with one key, as the kubelet keeps it: what is current is behind a link, which it
// exchanges for another.
func (p *pod) config(volume, generation, key, value string) {
	p.t.Helper()
	p.put(filepath.Join("secret", volume, generation, key), value)
	dir := filepath.Join(p.dir, "private", "secret", volume)
	err := errors.Join(os.Symlink(generation, filepath.Join(dir, "..new")), os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	if link := filepath.Join(dir, key); err == nil {
		if _, missing := os.Lstat(link); missing != nil {
			err = os.Symlink(filepath.Join("..data", key), link)
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// folder makes the folder of a claim, with the pod's group as the kubelet gives it.
func (p *pod) folder(volume string) string {
	p.t.Helper()
	dir := filepath.Join(p.dir, "private", "vmi-disks", volume)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, 0, 107), os.Chmod(dir, 0o775|os.ModeSetgid)); err != nil {
		p.t.Fatal(err)
	}
	return dir
}

// says runs a command in the guest, which has to work.
func (p *pod) says(command, want string) {
	p.t.Helper()
	if got := p.exec(command); got.Stdout != want || got.ExitCode != 0 {
		p.t.Errorf("%s: %+v, want %q", command, got, want)
	}
}

const mountAll = "mkdir -p /mnt/settings /mnt/work && mount -t virtiofs settings /mnt/settings && mount -t virtiofs work /mnt/work"

// TestAGuestMountsFoldersOfItsPod shows what a guest can do with them, and what not.
func TestAGuestMountsFoldersOfItsPod(t *testing.T) {
	p := start(t)
	p.config("settings", "..1", "color", "blue")
	work := p.folder("work")
	if err := os.WriteFile(filepath.Join(work, "from-outside"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.connected()
	p.boots(mounting())
	p.says(mountAll, "")

	p.says("cat /mnt/settings/color", "blue")
	p.config("settings", "..2", "color", "green")
	p.retry("a change of the ConfigMap", func() error {
		if got := p.exec("cat /mnt/settings/color"); got.Stdout != "green" {
			return fmt.Errorf("the guest reads %+v", got)
		}
		return nil
	})
	if got := p.exec("echo red > /mnt/settings/color || rm /mnt/settings/color || touch /mnt/settings/new"); got.ExitCode == 0 {
		t.Errorf("a guest writes into a ConfigMap: %+v", got)
	}

	p.says("cat /mnt/work/from-outside", "hello")
	p.says("mkdir /mnt/work/dir && echo from inside > /mnt/work/dir/file && sync && cat /mnt/work/dir/file", "from inside\n")
	p.says("chmod 0777 /mnt/work/dir && echo joe:x:1000:1000::/:/bin/sh >> /etc/passwd && su joe -c 'echo joe > /mnt/work/dir/joe' && chown 1000 /mnt/work/dir/joe && cat /mnt/work/dir/joe", "joe\n")
	for name, want := range map[string]string{"dir/file": "from inside\n", "dir/joe": "joe\n"} {
		path := filepath.Join(work, name)
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
			continue
		}
		if info, err := os.Stat(path); err != nil || info.Sys().(*syscall.Stat_t).Uid != 107 {
			t.Errorf("%s is %+v, %v", name, info, err)
		}
	}
	// A link leads to the guest's own file, and not to the pod's.
	p.says("echo the guest\\'s > /etc/machine-id; ln -s /etc/machine-id /mnt/work/link; ln -s / /mnt/work/root; cat /mnt/work/link /mnt/work/root/etc/machine-id", "the guest's\nthe guest's\n")
	if got := p.exec("cat /mnt/work/root/usr/bin/virt-launcher /mnt/work/../../usr/bin/virt-launcher"); got.Stdout != "" || got.ExitCode == 0 {
		t.Errorf("the guest sees the pod's files: %d bytes", len(got.Stdout))
	}
	p.unprivileged(programShare)
	p.fits(overhead.Machine{Guest: 128 << 20, VCPUs: 1, Graphics: true, Filesystems: 2})

	before := p.exec(boot).Stdout
	p.execLast("reboot")
	p.restarted(before)
	p.says(mountAll+" && cat /mnt/settings/color /mnt/work/dir/file", "greenfrom inside\n")

	if err := p.conn.Call(t.Context(), protocol.TypeShutdown, protocol.Shutdown{GracePeriodSeconds: 600}, nil); err != nil {
		t.Fatal(err)
	}
	state := p.until("phase Shutdown", func(s protocol.State) bool { return s.Phase == protocol.PhaseShutdown })
	if code := p.exit(); code != 0 || len(state.Filesystems) != 2 || state.Filesystems[0].Message+state.Filesystems[1].Message != "" {
		t.Errorf("exit code %d, state %+v", code, state)
	}
	if log := p.log.String(); strings.Contains(log, "Message of virtiofsd") {
		t.Errorf("virtiofsd complains:\n%s", log)
	}
}

// unprivileged makes sure that a program can do no more than its user, and only the system calls that it needs.
func (p *pod) unprivileged(program string) {
	p.t.Helper()
	for _, pid := range p.processes()[program] {
		status, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
		if err != nil {
			p.t.Fatal(err)
		}
		for _, want := range []string{"Uid:\t107\t107\t107\t107\n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
			if !strings.Contains(string(status), want) {
				p.t.Errorf("%s has no %q:\n%s", program, want, status)
			}
		}
	}
}

// TestAFilesystemIsLost shows what is told of a folder that nobody serves any more, in a guest whose memory has grown: the
// server has that, too.
func TestAFilesystemIsLost(t *testing.T) {
	p := start(t)
	p.config("settings", "..1", "color", "blue")
	p.folder("work")
	p.connected()
	vmi := mounting()
	less, most := resource.MustParse("192Mi"), resource.MustParse("320Mi")
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: &less, MaxGuest: &most}
	p.boots(vmi)
	p.says(mountAll, "")
	if err := p.conn.Call(t.Context(), protocol.TypeResize, protocol.Resize{Memory: most.Value()}, nil); err != nil {
		t.Fatal(err)
	}
	p.until("the memory that was added", func(s protocol.State) bool { return s.Memory != nil && s.Memory.Current == most.Value() })
	p.says("dd if=/dev/urandom of=/run/big bs=1M count=40 2>/dev/null && cp /run/big /mnt/work/big && sync && echo 3 > /proc/sys/vm/drop_caches && cmp /run/big /mnt/work/big && rm /run/big && echo same", "same\n")

	server := p.server("work")
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	state := p.until("a lost filesystem", func(s protocol.State) bool { return len(s.Filesystems) == 2 && s.Filesystems[1].Message != "" })
	if state.Phase != protocol.PhaseRunning || state.Filesystems[0].Message != "" || !strings.Contains(state.Filesystems[1].Message, "virtiofsd of filesystem work ended: signal: killed") {
		t.Errorf("state %+v", state)
	}
	p.says("cat /mnt/settings/color", "blue")
	if _, err := os.Stat(filepath.Join("/proc", itoa(server))); err == nil {
		t.Error("nobody has collected the server's process")
	}
}

// server is the process that serves a filesystem.
func (p *pod) server(name string) int {
	p.t.Helper()
	for _, pid := range p.processes()[programShare] {
		args, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline"))
		if err == nil && strings.Contains(string(args), "/"+name+"\x00") {
			return pid
		}
	}
	p.t.Fatalf("nobody serves filesystem %s", name)
	return 0
}

// TestAClaimWithoutAFolderIsNoFilesystem shows what is told of a claim that is a block device.
func TestAClaimWithoutAFolderIsNoFilesystem(t *testing.T) {
	p := start(t)
	p.config("settings", "..1", "color", "blue")
	p.connected()
	state, err := p.sync(mounting())
	if err != nil || state.Phase != protocol.PhaseFailed || state.Reason != "FilesystemsNotReady" || !strings.Contains(state.Message, "filesystem work") {
		t.Errorf("state %+v, %v", state, err)
	}
	if code := p.exit(); code == 0 {
		t.Error("the launcher ends well")
	}
}
