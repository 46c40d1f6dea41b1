//go:build integration

package launcher_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// onClaim is a guest with a disk on a claim named data, in a pod's volume of that name.
func onClaim() *v1.VirtualMachineInstance {
	vmi := unbootable()
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{
		Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
	})
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "shop"}}})
	return vmi
}

// onNode is a guest with a disk on a file of the node, in a pod's volume named data.
func onNode() *v1.VirtualMachineInstance {
	vmi := onClaim()
	vmi.Spec.Volumes[len(vmi.Spec.Volumes)-1].VolumeSource = v1.VolumeSource{
		HostDisk: &v1.HostDisk{Path: "/data/disk.img", Type: v1.HostDiskExistsOrCreate},
	}
	return vmi
}

// storage is a disk that two pods have.
type storage struct {
	// guest has the disk, on what the launcher calls so.
	guest func() *v1.VirtualMachineInstance
	on    string
	// start starts a pod that has it.
	start func(t *testing.T) *pod
	// kept makes sure that QEMU itself keeps others away from it, also when the launcher ends first.
	kept func(p *pod)
	// refused makes sure that nobody else can write to it as QEMU does.
	refused func(t *testing.T)
}

// nodeStorage is a file of the node.
func nodeStorage(t *testing.T) storage {
	t.Helper()
	file := fileStorage(t)
	file.guest, file.on = onNode, "file /data/disk.img of the node"
	return file
}

// fileStorage is a file, which pods have by links to it.
func fileStorage(t *testing.T) storage {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk.img")
	if err := errors.Join(os.WriteFile(disk, make([]byte, 1<<20), 0o660), os.Chown(disk, 107, 107)); err != nil {
		t.Fatal(err)
	}
	return storage{
		guest: onClaim, on: "claim shop",
		start: func(t *testing.T) *pod {
			t.Helper()
			p := start(t)
			dir := filepath.Join(p.dir, "private", "vmi-disks", "data")
			if err := errors.Join(os.MkdirAll(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o777), os.Chmod(dir, 0o777), os.Link(disk, filepath.Join(dir, "disk.img"))); err != nil {
				t.Fatal(err)
			}
			return p
		},
		kept: func(*pod) {}, // by QEMU's own locks
		refused: func(t *testing.T) {
			t.Helper()
			out, err := exec.Command("qemu-img", "resize", "-f", "raw", disk, "2M").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "lock") {
				t.Errorf("another QEMU may write to a disk in use: %s, %v", out, err)
			}
		},
	}
}

// blockStorage is a device, of which every pod has a node of its own.
func blockStorage(t *testing.T) storage {
	t.Helper()
	file := filepath.Join(t.TempDir(), "device")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", file).Output()
	if err != nil {
		t.Fatalf("making a block device: %v", err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", device).Run() })
	var stat unix.Stat_t
	if err := unix.Stat(device, &stat); err != nil {
		t.Fatal(err)
	}
	t.Setenv("POD_BLOCK", fmt.Sprintf("%d %d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev)))
	return storage{
		guest: onClaim, on: "claim shop",
		start: func(t *testing.T) *pod { t.Helper(); return start(t) },
		kept:  func(p *pod) { p.sharesDevice(stat.Rdev) },
		refused: func(t *testing.T) {
			t.Helper()
			other, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL, 0)
			if err == nil {
				_ = other.Close()
			}
			if !errors.Is(err, unix.EBUSY) {
				t.Errorf("another launcher may have a device in use: %v", err)
			}
		},
	}
}

func inUse(s protocol.State) bool {
	return s.Phase == protocol.PhaseStarting && s.Reason == protocol.ReasonDiskInUse
}

func TestADiskHasOneQEMU(t *testing.T) {
	for name, make := range map[string]func(t *testing.T) storage{"a file": fileStorage, "a block device": blockStorage, "a file of the node": nodeStorage} {
		t.Run(name, func(t *testing.T) {
			disk := make(t)
			first := disk.start(t)
			first.connected()
			if state, err := first.sync(disk.guest()); err != nil || state.Phase != protocol.PhaseRunning {
				t.Fatalf("%+v, %v", state, err)
			}
			disk.refused(t)
			disk.kept(first)
			first.kill("libvirtd", syscall.SIGKILL)
			disk.kept(first)

			second := disk.start(t)
			second.connected()
			state, err := second.sync(disk.guest())
			if err != nil || !inUse(state) || !strings.Contains(state.Message, "volume data ("+disk.on+")") {
				t.Fatalf("a second guest on the disk: %+v, %v", state, err)
			}
			t.Log(state.Message)

			third := disk.start(t)
			third.connected()
			if state, err := third.sync(disk.guest()); err != nil || !inUse(state) {
				t.Fatalf("a third guest on the disk: %+v, %v", state, err)
			}
			third.shutDown(t, protocol.Shutdown{GracePeriodSeconds: 30})
			state = third.until("the end of a guest that waits", phase(protocol.PhaseShutdown))
			if code := third.exit(); code != 0 {
				t.Errorf("exit code %d, %+v", code, state)
			}

			// A QEMU that stands still keeps its disk, also while libvirt is away.
			first.kill("qemu-system-x86_64", syscall.SIGSTOP)
			first.kill("libvirtd", syscall.SIGKILL)
			disk.refused(t)
			second.mu.Lock()
			for _, seen := range second.states {
				if seen.Phase != protocol.PhaseNone && seen.Phase != protocol.PhaseStarting {
					t.Errorf("the second guest did not wait: %+v", seen)
				}
			}
			second.mu.Unlock()

			first.kill("virt-launcher", syscall.SIGKILL)
			second.until("Running once the disk is free", phase(protocol.PhaseRunning))
			disk.refused(t)
		})
	}
}

// shutDown asks the launcher to shut its guest down. One without a guest may have ended before its answer is out, which its state tells.
func (p *pod) shutDown(t *testing.T, shutdown protocol.Shutdown) {
	t.Helper()
	if err := p.conn.Call(t.Context(), protocol.TypeShutdown, shutdown, nil); err != nil && !errors.Is(err, wire.ErrClosed) {
		t.Fatal(err)
	}
}

// sharesDevice waits until the launcher's open file of a block device is QEMU's too.
func (p *pod) sharesDevice(device uint64) {
	p.t.Helper()
	launcher, qemu := p.pid("virt-launcher"), p.pid("qemu-system-x86_64")
	deadline, look := time.After(patience), time.NewTicker(50*time.Millisecond)
	defer look.Stop()
	for {
		for _, a := range openDevices(launcher, device) {
			for _, b := range openDevices(qemu, device) {
				const kcmpFile = 0
				differ, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(launcher), uintptr(qemu), kcmpFile, uintptr(a), uintptr(b), 0)
				if errno == 0 && differ == 0 {
					return
				}
			}
		}
		select {
		case <-look.C:
		case <-deadline:
			p.t.Fatal("QEMU does not have the device open as the launcher has: alone")
		}
	}
}

// onlySharesDevice makes sure that QEMU has a block device open, and only as the launcher has: it
// opened nothing by itself.
func (p *pod) onlySharesDevice(device uint64) {
	p.t.Helper()
	launcher, qemu := p.pid("virt-launcher"), p.pid("qemu-system-x86_64")
	p.retry("QEMU has the device of the launcher", func() error { // it may be handed over again just now
		given, used := openDevices(launcher, device), openDevices(qemu, device)
		for _, b := range used {
			same := slices.ContainsFunc(given, func(a int) bool {
				const kcmpFile = 0
				differ, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(launcher), uintptr(qemu), kcmpFile, uintptr(a), uintptr(b), 0)
				return errno == 0 && differ == 0
			})
			if !same {
				return fmt.Errorf("QEMU opened the device by itself, as %d", b)
			}
		}
		if len(used) < 2 { // what it was handed, and what its disk uses
			return fmt.Errorf("QEMU has the device open as %v, the launcher as %v", used, given)
		}
		return nil
	})
}

// openDevices are the numbers of a process's open files of a block device.
func openDevices(pid int, device uint64) []int {
	dir := filepath.Join("/proc", itoa(pid), "fd")
	entries, _ := os.ReadDir(dir) // of a process that ended there are none
	var found []int
	for _, entry := range entries {
		var stat unix.Stat_t
		if unix.Stat(filepath.Join(dir, entry.Name()), &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFBLK && stat.Rdev == device {
			if n, err := strconv.Atoi(entry.Name()); err == nil {
				found = append(found, n)
			}
		}
	}
	return found
}
