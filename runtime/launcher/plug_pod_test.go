//go:build integration

package launcher_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// TestDisksComeAndGo gives a running guest disks from claims that are not in its pod, takes
// them away, and loses libvirtd in between.
func TestDisksComeAndGo(t *testing.T) {
	p := start(t)
	p.connected()
	drives := guest()
	addDrive(drives, "cd")
	if state, err := p.sync(drives); err != nil || state.Phase != protocol.PhaseRunning || len(state.Disks) != 3 {
		t.Fatalf("state %+v, %v", state, err)
	}
	p.until("the agent's report", agentUp)
	claims := map[string]string{"data": claimDir(t), "fast": claimDir(t)}
	vmi := guest()
	addDisk(vmi, "data", v1.DiskBusSCSI)
	addDisk(vmi, "fast", v1.DiskBusVirtio)
	for _, volume := range []string{"data", "fast", "data"} { // the last changes nothing
		p.plugged(vmi, volume, claims[volume])
	}
	state := p.until("both disks", func(s protocol.State) bool { return len(s.Disks) == 5 })
	if data := state.Disks[3]; data.Volume != "data" || data.Target != "sdb" || data.Claim != "data" || data.Size != 32<<20 {
		t.Errorf("%+v", data)
	}
	p.inGuest("[ $(cat /sys/block/sda/size /sys/block/vdd/size 2>/dev/null | wc -l) = 2 ] && cat /sys/block/vdd/serial", "serial-fast")
	p.inGuest("echo written by the guest | dd of=/dev/sda conv=fsync 2>&1; echo fast one | dd of=/dev/vdd conv=fsync 2>&1", "records out")
	for volume, want := range map[string]string{"data": "written by the guest", "fast": "fast one"} {
		content, err := os.ReadFile(filepath.Join(claims[volume], "disk.img"))
		if err != nil || len(content) != 32<<20 || !strings.HasPrefix(string(content), want) {
			t.Errorf("claim %s holds %d bytes beginning %.20q, %v", volume, len(content), content, err)
		}
	}

	if err := syscall.Kill(p.pid("libvirtd"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, volume := range []string{"data", "fast"} {
		p.unplug(vmi, volume)
	}
	p.forget()
	p.unplugged(3)
	p.inGuest("[ -e /sys/block/sda ] || [ -e /sys/block/vdd ] || ls /sys/block", "vdc") // a SCSI disk goes a moment later

	p.forget()
	addDrive(vmi, "cd")
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "cd", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "data"}}})
	p.plugged(vmi, "cd", claims["data"])
	p.inGuest("dd if=/dev/sr0 count=1 2>/dev/null | grep written", "written by the guest")
	p.unplug(vmi, "cd")
	p.unplugged(3)
	p.inGuest("dd if=/dev/sr0 count=1 2>&1 | tail -1", "No medium found")
	p.plugged(vmi, "data", claims["data"])
	// A disk that has just come may answer the first read with what happened to it before it has data.
	p.inGuest("dd if=/dev/sda count=1 2>/dev/null | grep written", "written by the guest")
	for name, edit := range map[string]func(*v1.VirtualMachineInstance){
		"cannot be added to a running machine": func(vmi *v1.VirtualMachineInstance) { addDisk(vmi, "late", v1.DiskBusSATA) },
		"add it":                               func(*v1.VirtualMachineInstance) {},
	} {
		late := guest()
		edit(late)
		if err := p.plug(late, "late", claims["fast"]); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q in it", err, name)
		}
	}
}

// unplugged waits until the guest has want disks, asking again for those that stay.
func (p *pod) unplugged(want int) {
	p.t.Helper()
	p.retry("the disks leave", func() error {
		var state protocol.State
		if err := p.conn.Call(p.t.Context(), protocol.TypeSync, protocol.Sync{VMI: guest(), Facts: protocol.Facts{Interfaces: links()}}, &state); err != nil {
			return err
		}
		if len(state.Disks) == want {
			return nil
		}
		for _, disk := range state.Disks {
			if disk.Leaving {
				_ = p.conn.Call(p.t.Context(), protocol.TypeUnplug, protocol.Unplug{VMI: guest(), Volume: disk.Volume}, nil) // its state tells
			}
		}
		return errDisks(state.Disks)
	})
}

// plugged is plug once libvirtd, which may be starting again, lets it.
func (p *pod) plugged(vmi *v1.VirtualMachineInstance, volume, dir string) {
	p.t.Helper()
	p.retry("the guest gets the disk", func() error { return p.plug(vmi, volume, dir) })
}

// unplug asks for a disk's leaving, likewise.
func (p *pod) unplug(vmi *v1.VirtualMachineInstance, volume string) {
	p.t.Helper()
	p.retry("the disk's leaving is asked for", func() error {
		return p.conn.Call(p.t.Context(), protocol.TypeUnplug, protocol.Unplug{VMI: vmi, Volume: volume}, nil)
	})
}

// retry calls do until it succeeds.
func (p *pod) retry(what string, do func() error) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for err := do(); err != nil; err = do() {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %v", what, err)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// inGuest runs a command in the guest until it says what is wanted: what comes to a guest or goes is there, or away, a moment later.
func (p *pod) inGuest(command, want string) {
	p.t.Helper()
	p.retry("asking the guest", func() error {
		if got := p.exec(command); !strings.Contains(got.Stdout, want) {
			return fmt.Errorf("%s said %+v, want %q in it", command, got, want)
		}
		return nil
	})
}

// plug hands the launcher the folder of a claim.
func (p *pod) plug(vmi *v1.VirtualMachineInstance, volume, dir string) error {
	p.t.Helper()
	claim, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer claim.Close()
	return p.conn.Call(p.t.Context(), protocol.TypePlug, protocol.Plug{VMI: vmi, Volume: volume, ClaimSize: 32 << 20}, nil, claim)
}

// claimDir is an empty claim that the pod does not have.
func claimDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chown(dir, 107, 107); err != nil {
		t.Fatal(err)
	}
	return dir
}

func addDisk(vmi *v1.VirtualMachineInstance, name string, bus v1.DiskBus) {
	disk := v1.Disk{Name: name, Serial: "serial-" + name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}}}
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, disk)
	source := v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: name, Hotpluggable: true}}
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
}

// addDrive adds a CD-ROM drive with nothing in it.
func addDrive(vmi *v1.VirtualMachineInstance, name string) {
	drive := v1.Disk{Name: name, DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}}
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, drive)
}

type errDisks []protocol.Disk

func (e errDisks) Error() string {
	var all []string
	for _, disk := range e {
		all = append(all, disk.Volume+" "+disk.Message)
	}
	return "the guest has the disks " + strings.Join(all, ", ")
}
