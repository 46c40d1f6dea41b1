//go:build integration

package launcher_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/tests/guest/recipe"
)

// Commands to a TPM 2.0 as its specification has them, with an empty password: to make
// eight bytes that last (at 0x01500010), to write them, and to read them.
const (
	tpmDefine = `\x80\x02\x00\x00\x00\x2d\x00\x00\x01\x2a\x40\x00\x00\x01\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00` +
		`\x00\x00\x00\x0e\x01\x50\x00\x10\x00\x0b\x00\x06\x00\x06\x00\x00\x00\x08`
	tpmWrite = `\x80\x02\x00\x00\x00\x2b\x00\x00\x01\x37\x01\x50\x00\x10\x01\x50\x00\x10\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00` +
		`\x00\x08SLIPWAY!\x00\x00`
	tpmRead = `\x80\x02\x00\x00\x00\x23\x00\x00\x01\x4e\x01\x50\x00\x10\x01\x50\x00\x10\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00\x00\x08\x00\x00`
)

// askTPM sends a command to the guest's TPM and returns the answer in hexadecimal digits.
func (p *pod) askTPM(command string) string {
	p.t.Helper()
	return p.exec(`exec 3<>/dev/tpm0; printf '` + command + `' | dd bs=4096 status=none >&3; dd bs=4096 count=1 status=none <&3 | od -An -v -tx1 | tr -d ' \n'`).Stdout
}

const tpmOK = "00000000" // the answer's code, after two bytes of kind and four of length

func withState(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	yes := true
	count := uint32(2)
	domain := &vmi.Spec.Domain
	domain.Devices.TPM = &v1.TPMDevice{Persistent: &yes}
	domain.Devices.Sound = &v1.SoundDevice{Name: "hum"}
	domain.IOThreadsPolicy, domain.IOThreads = new(v1.IOThreadsPolicySupplementalPool), &v1.DiskIOThreads{SupplementalPoolThreadCount: &count}
	return vmi
}

func (p *pod) boots(vmi *v1.VirtualMachineInstance) {
	p.t.Helper()
	before := time.Now()
	if state, err := p.sync(vmi); err != nil || state.Phase != protocol.PhaseRunning {
		p.t.Fatalf("state %+v, %v", state, err)
	}
	p.t.Logf("sync to Running: %s", time.Since(before))
	p.until("the agent's report", agentUp)
}

// The guest's TPM works without privilege, and what the guest leaves in it is there again
// in the next pod that has the same folder of state.
func TestATPMKeepsItsState(t *testing.T) {
	first := start(t)
	first.connected()
	first.boots(withState(guest()))
	if got := first.exec("cat /sys/class/tpm/tpm0/tpm_version_major /sys/bus/acpi/devices/MSFT0101:00/hid; cat /sys/bus/pci/devices/*/class").Stdout; !strings.HasPrefix(got, "2\nMSFT0101\n") || !strings.Contains(got, "0x0403") {
		t.Errorf("the guest sees no TPM or sound card:\n%s", got)
	}
	for _, command := range []string{tpmDefine, tpmWrite} {
		if got := first.askTPM(command); len(got) < 20 || got[12:20] != tpmOK {
			t.Fatalf("to %q the TPM answered %q", command, got)
		}
	}
	first.tpmMemory()
	if err := first.conn.Call(t.Context(), protocol.TypeShutdown, protocol.Shutdown{GracePeriodSeconds: 600}, nil); err != nil {
		t.Fatal(err)
	}
	if code := first.exit(); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	second := start(t)
	second.connected()
	keepState(t, first, second)
	second.boots(withState(guest()))
	if got := second.askTPM(tpmRead); !strings.Contains(got, "534c495057415921") { // SLIPWAY!
		t.Errorf("what the guest left in the TPM is gone; it answered %q", got)
	}
	if err := second.conn.Call(t.Context(), protocol.TypeDestroy, nil, nil); err != nil {
		t.Fatal(err)
	}
	second.exit()

	// A VM that is restored from another's snapshot has another UUID.
	third := start(t)
	third.connected()
	keepState(t, second, third)
	other := withState(guest())
	other.Spec.Domain.Firmware = &v1.Firmware{UUID: "66666666-7777-8888-9999-000000000000"}
	third.boots(other)
	if got := third.askTPM(tpmRead); !strings.Contains(got, "534c495057415921") {
		t.Errorf("under another UUID what was left in the TPM is gone; it answered %q", got)
	}
}

// tpmMemory reports what the TPM takes.
func (p *pod) tpmMemory() {
	p.t.Helper()
	rollup, err := os.ReadFile(filepath.Join("/proc", itoa(p.pid("swtpm")), "smaps_rollup"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Logf("swtpm's memory:\n%s", rollup)
}

// bootFiles opens the tiny guest's kernel and initial file system.
func bootFiles(t *testing.T) []*os.File {
	t.Helper()
	disk, err := builtGuest()
	if err != nil {
		t.Fatal(err)
	}
	kernel, initrd, err := recipe.BootFiles(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for _, content := range [][]byte{kernel, initrd} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		files = append(files, file)
	}
	return files
}

// UEFI boots a kernel that came without a disk, and what UEFI wrote in its first pod is
// not made anew in the next.
func TestUEFIBootsAKernelAndKeepsItsVariables(t *testing.T) {
	yes, no := true, false
	vmi := unbootable()
	memory := resource.MustParse("256Mi") // UEFI takes its part before the kernel is unpacked
	vmi.Spec.Domain.Memory.Guest = &memory
	vmi.Spec.Domain.Firmware = &v1.Firmware{
		UUID: uid, Bootloader: &v1.Bootloader{EFI: &v1.EFI{Persistent: &yes, SecureBoot: &no}},
		KernelBoot: &v1.KernelBoot{
			KernelArgs: "console=ttyS0,115200 quiet nokaslr mitigations=off random.trust_cpu=on no_timer_check clocksource=acpi_pm tsc=unstable cryptomgr.notests slipway=yes",
			Container:  &v1.KernelBootContainer{Image: "tiny", KernelPath: "/boot/vmlinuz", InitrdPath: "/boot/initrd"},
		},
	}
	files := bootFiles(t)
	sync := func(p *pod) {
		t.Helper()
		p.connected()
		message := protocol.Sync{VMI: vmi, Facts: protocol.Facts{
			AllowEmulation: true, Interfaces: links(), ContainerDisks: []string{names.KernelBootKernel, names.KernelBootInitrd},
		}}
		var state protocol.State
		if err := p.conn.Call(t.Context(), protocol.TypeSync, message, &state, files...); err != nil || state.Phase != protocol.PhaseRunning {
			t.Fatalf("%+v, %v", state, err)
		}
	}
	first := start(t)
	before := time.Now()
	sync(first)
	first.until("the agent's report", agentUp)
	t.Logf("from UEFI to the agent: %s", time.Since(before))
	if got := first.exec("cat /sys/firmware/efi/fw_platform_size /proc/cmdline").Stdout; !strings.HasPrefix(got, "64\n") || !strings.Contains(got, "slipway=yes") {
		t.Errorf("the guest was not started by UEFI with its arguments: %s", got)
	}
	if err := first.conn.Call(t.Context(), protocol.TypeDestroy, nil, nil); err != nil {
		t.Fatal(err)
	}
	first.exit()

	variables := filepath.Join("private", "vm-state", "nvram", "tiny_VARS.fd")
	data, err := os.ReadFile(filepath.Join(first.dir, variables))
	if err != nil {
		t.Fatal(err)
	}
	mark := []byte("a mark of this test's")
	copy(data[len(data)-4096:], mark) // in the spare block, which UEFI leaves alone
	if err := os.WriteFile(filepath.Join(first.dir, variables), data, 0o600); err != nil {
		t.Fatal(err)
	}
	second := start(t)
	keepState(t, first, second)
	sync(second)
	if err := second.conn.Call(t.Context(), protocol.TypeDestroy, nil, nil); err != nil {
		t.Fatal(err)
	}
	second.exit()
	data, err = os.ReadFile(filepath.Join(second.dir, variables))
	if err != nil || !bytes.Contains(data, mark) {
		t.Errorf("UEFI's variables were made anew: %v", err)
	}
}

// What Windows 11 asks for starts, and leaves all that it keeps in the folder of state.
func TestAMachineForWindows11Starts(t *testing.T) {
	yes := true
	vmi := unbootable()
	vmi.Spec.Domain.Firmware = &v1.Firmware{UUID: uid, Bootloader: &v1.Bootloader{EFI: &v1.EFI{Persistent: &yes}}}
	vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: &yes}
	p := start(t)
	p.connected()
	message := protocol.Sync{VMI: vmi, Facts: protocol.Facts{AllowEmulation: true, Interfaces: links()}}
	windows(&message)
	var state protocol.State
	if err := p.conn.Call(t.Context(), protocol.TypeSync, message, &state); err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("%+v, %v", state, err)
	}
	if err := p.conn.Call(t.Context(), protocol.TypeDestroy, nil, nil); err != nil {
		t.Fatal(err)
	}
	p.exit()
	for _, path := range []string{"nvram/tiny_VARS.fd", "swtpm/" + uid + "/tpm2/tpm2-00.permall", "swtpm-localca/issuercert.pem"} {
		if info, err := os.Stat(filepath.Join(p.dir, "private", "vm-state", path)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// keepState gives the second pod the first one's folder of state, as a claim does.
func keepState(t *testing.T, first, second *pod) {
	t.Helper()
	out, err := exec.Command("cp", "-a", filepath.Join(first.dir, "private", "vm-state"), filepath.Join(second.dir, "private")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
