//go:build integration

package launcher_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// TestDevicesComeAndGo gives a running guest disks on block devices that its pod has no file of and may
// not open, takes them away, and loses libvirtd in between.
func TestDevicesComeAndGo(t *testing.T) {
	p := start(t)
	p.connected()
	drives := guest()
	addDrive(drives, "cd")
	if state, err := p.sync(drives); err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("state %+v, %v", state, err)
	}
	p.until("the agent's report", agentUp)
	device, number := loopDevice(t)
	vmi := guest()
	addDisk(vmi, "data", v1.DiskBusSCSI)
	addDisk(vmi, "cached", v1.DiskBusVirtio)
	vmi.Spec.Domain.Devices.Disks[len(vmi.Spec.Domain.Devices.Disks)-1].Cache = v1.CacheWriteBack
	for _, volume := range []string{"data", "cached"} {
		p.comesAndGoes(vmi, volume, device, number)
	}

	addDrive(vmi, "cd")
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "cd", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "data"}}})
	p.retry("the guest gets the disc", func() error { return p.plugDevice(vmi, "cd", device, os.O_RDONLY) })
	p.onlySharesDevice(number)
	p.inGuest("dd if=/dev/sr0 count=1 2>/dev/null | grep written", "written to cached")
	p.unplug(vmi, "cd")
	p.letGo(number)

	if err := p.plugDevice(vmi, "data", "/dev/null", os.O_RDWR); err == nil || !strings.Contains(err.Error(), "neither a folder nor a block device") {
		t.Errorf("what is no block device: %v", err)
	}
	// What cannot be a disk is not kept.
	late := guest()
	addDisk(late, "late", v1.DiskBusSATA)
	if err := p.plugDevice(late, "late", device, os.O_RDWR|unix.O_EXCL); err == nil || !strings.Contains(err.Error(), "cannot be added to a running machine") {
		t.Errorf("a SATA disk: %v", err)
	}
	p.letGo(number)
}

// comesAndGoes plugs the device in, has the guest write to it, ends libvirtd and takes it out again.
func (p *pod) comesAndGoes(vmi *v1.VirtualMachineInstance, volume, device string, number uint64) {
	t := p.t
	t.Helper()
	p.retry("the guest gets the disk", func() error { return p.plugDevice(vmi, volume, device, os.O_RDWR|unix.O_EXCL) })
	p.onlySharesDevice(number)
	p.inGuest(`for d in /sys/block/*; do s=$(cat $d/serial 2>/dev/null || tail -c +5 $d/device/vpd_pg80 2>/dev/null); case "$s" in *serial-`+volume+
		`*) echo written to `+volume+` | dd of=/dev/${d##*/} conv=fsync 2>&1; echo of $(cat $d/size); exit;; esac; done`, "of 8192")
	content, err := os.ReadFile(device)
	if err != nil || !strings.HasPrefix(string(content), "written to "+volume) {
		t.Errorf("the device begins with %.20q, %v", content, err)
	}

	p.kill("libvirtd", syscall.SIGKILL)
	p.onlySharesDevice(number)
	if other, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL, 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("another machine gets the device: %v", err)
		_ = other.Close()
	}
	p.unplug(vmi, volume)
	p.unplugged(3)
	p.letGo(number)
}

// letGo waits until nobody in the pod has the device, and nothing stands for it.
func (p *pod) letGo(number uint64) {
	p.t.Helper()
	p.retry("the device is closed", func() error {
		if open := append(openDevices(p.pid("qemu-system-x86_64"), number), openDevices(p.pid("virt-launcher"), number)...); len(open) > 0 {
			return errDisks{{Volume: "device", Message: "is open"}}
		}
		left, err := os.ReadDir(filepath.Join("/proc", itoa(p.pid("virt-launcher")), "root/dev/fdset"))
		if err == nil && len(left) > 0 {
			err = errors.New("there is still " + left[0].Name())
		}
		return err
	})
}

// plugDevice hands the launcher an open device.
func (p *pod) plugDevice(vmi *v1.VirtualMachineInstance, volume, path string, flags int) error {
	p.t.Helper()
	device, err := os.OpenFile(path, flags, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer device.Close()
	return p.conn.Call(p.t.Context(), protocol.TypePlug, protocol.Plug{VMI: vmi, Volume: volume}, nil, device)
}

// loopDevice makes a block device of 4 MiB that no pod has, and returns its path and number.
func loopDevice(t *testing.T) (string, uint64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "device")
	if err := os.WriteFile(file, make([]byte, 4<<20), 0o600); err != nil {
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
	return device, stat.Rdev
}
