//go:build integration

package launcher_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// TestAGuestHasProcessorsAndMemoryOfItsOwn boots a guest in huge pages, on one of the two
// processors of its pod; the other is the emulator's. It reads the table of the firmware that it
// was given, and finds its disk where that asked to be.
func TestAGuestHasProcessorsAndMemoryOfItsOwn(t *testing.T) {
	vmi := guest()
	vmi.Spec.Domain.CPU = &v1.CPU{Cores: 1, DedicatedCPUPlacement: true, IsolateEmulatorThread: true}
	vmi.Spec.Domain.Memory.Hugepages = &v1.Hugepages{PageSize: "2Mi"}
	vmi.Spec.Domain.Devices.Disks[2].Disk = &v1.DiskTarget{Bus: v1.DiskBusVirtio, PciAddress: "0000:00:0a.0"}
	vmi.Spec.Domain.Firmware = &v1.Firmware{ACPI: &v1.ACPI{MsdmNameRef: "licence"}}
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "licence", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "licence"}}})
	cpus := twoProcessors(t)
	offerHugepages(t, 128<<20)
	t.Setenv("POD_CPUS", cpus[0]+","+cpus[1])
	p := start(t)
	secret := filepath.Join(p.dir, "private", "secret", "licence")
	if err := errors.Join(os.MkdirAll(secret, 0o755), os.WriteFile(filepath.Join(secret, "msdm.bin"), table("MSDM", "a key of a system"), 0o644)); err != nil {
		t.Fatal(err)
	}
	p.connected()
	if state, err := p.sync(vmi); err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("state %+v, %v", state, err)
	}
	qemu := p.pid("qemu-system-x86_64")
	if got := allowed(t, qemu, qemu); got != cpus[1] {
		t.Errorf("the emulator may run on %s, want %s", got, cpus[1])
	}
	if got := allowed(t, qemu, vcpu(t, qemu, 0)); got != cpus[0] {
		t.Errorf("the guest's processor may run on %s, want %s", got, cpus[0])
	}
	for _, program := range []string{"virt-launcher", "libvirtd"} {
		if pid := p.pid(program); allowed(t, pid, pid) != cpus[1] {
			t.Errorf("%s may run on %s, and so disturb the guest", program, allowed(t, pid, pid))
		}
	}
	if got := inHugepages(t, qemu); got != 128<<10 {
		t.Errorf("%d KiB of the guest's memory are in huge pages, want all 131072", got)
	}
	between(t, "processors that the guest may run on", p.stats(t).CPU.Affinity, 1, 1)
	p.until("the agent's report", agentUp)
	facts := p.exec("cat /sys/firmware/acpi/tables/MSDM; cat /sys/bus/pci/devices/0000:00:0a.0/virtio*/block/*/size").Stdout
	for _, want := range []string{"a key of a system", "131072"} {
		if !strings.Contains(facts, want) {
			t.Errorf("the guest lacks %q:\n%s", want, facts)
		}
	}
}

// TestAGuestOnItsNUMANode starts, and does not run, a guest that sees the NUMA node that its
// processor is on. Its huge pages are in a file.
func TestAGuestOnItsNUMANode(t *testing.T) {
	vmi := onNUMANode()
	cpus := twoProcessors(t)
	offerHugepages(t, 64<<20)
	t.Setenv("POD_CPUS", cpus[0]+","+cpus[1])
	p := start(t)
	p.connected()
	if state := p.load(vmi); state.Phase != protocol.PhasePaused {
		t.Fatalf("%+v", state)
	}
	qemu := p.pid("qemu-system-x86_64")
	if got := allowed(t, qemu, vcpu(t, qemu, 0)); got != cpus[0] {
		t.Errorf("the guest's processor may run on %s, want %s", got, cpus[0])
	}
	if got := inHugepages(t, qemu); got != 64<<10 {
		t.Errorf("%d KiB of the guest's memory are in huge pages, want all 65536", got)
	}
	maps, err := os.ReadFile(filepath.Join("/proc", itoa(qemu), "numa_maps"))
	if err != nil || !strings.Contains(string(maps), "bind:") {
		t.Errorf("none of the guest's memory is bound to a NUMA node: %v", err)
	}
	p.ask(protocol.TypeDestroy, nil)
	p.until("the end", phase(protocol.PhaseShutdown))
}

// TestAGuestInRealTime has a processor that comes before all else on the node's. Where this
// machine lets nobody allow that to a pod, its start fails, and says why.
func TestAGuestInRealTime(t *testing.T) {
	vmi := onNUMANode()
	vmi.Spec.Domain.CPU.Realtime = &v1.Realtime{}
	cpus := twoProcessors(t)
	offerHugepages(t, 64<<20)
	t.Setenv("POD_CPUS", cpus[0]+","+cpus[1])
	may := raisesLimits(t)
	if may {
		t.Setenv("POD_REALTIME", "1")
	}
	p := start(t)
	p.connected()
	state := p.load(vmi)
	if !may {
		t.Log("This machine's root may not raise limits: a guest in real time is only refused")
		if state.Reason != "StartFailed" || !strings.Contains(state.Message, "scheduler") {
			t.Errorf("%+v", state)
		}
		return
	}
	if state.Phase != protocol.PhasePaused {
		t.Fatalf("%+v", state)
	}
	attributes, err := unix.SchedGetAttr(vcpu(t, p.pid("qemu-system-x86_64"), 0), 0)
	if err != nil || attributes.Policy != unix.SCHED_FIFO || attributes.Priority != 1 {
		t.Errorf("the guest's processor has the policy %+v, %v", attributes, err)
	}
	p.ask(protocol.TypeDestroy, nil)
	p.until("the end", phase(protocol.PhaseShutdown))
}

// onNUMANode is a guest on a NUMA node, loaded and not run.
func onNUMANode() *v1.VirtualMachineInstance {
	vmi := unbootable()
	vmi.Annotations = map[string]string{v1.MemfdMemoryBackend: "false"}
	vmi.Spec.StartStrategy = new(v1.StartStrategyPaused)
	vmi.Spec.Domain.CPU = &v1.CPU{
		Cores: 1, DedicatedCPUPlacement: true, IsolateEmulatorThread: true,
		NUMA: &v1.NUMA{GuestMappingPassthrough: &v1.NUMAGuestMappingPassthrough{}},
	}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("64Mi")), Hugepages: &v1.Hugepages{PageSize: "2Mi"}}
	return vmi
}

// load has the launcher start vmi, which has no container disk.
func (p *pod) load(vmi *v1.VirtualMachineInstance) protocol.State {
	p.t.Helper()
	var state protocol.State
	message := protocol.Sync{VMI: vmi, Facts: protocol.Facts{AllowEmulation: true, Interfaces: links()}}
	if err := p.conn.Call(p.t.Context(), protocol.TypeSync, message, &state); err != nil {
		p.t.Fatal(err)
	}
	return state
}

// raisesLimits says whether this process has CAP_SYS_RESOURCE, as a privileged pod has.
func raisesLimits(t *testing.T) bool {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	capabilities, err := strconv.ParseUint(fieldOf(string(status), "CapEff:"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return capabilities&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// TestProcessorsThatAreNotTheGuestsAlone are as many as a node has whose kubelet gives none away.
func TestProcessorsThatAreNotTheGuestsAlone(t *testing.T) {
	vmi := unbootable()
	vmi.Spec.Domain.CPU = &v1.CPU{Cores: 1, DedicatedCPUPlacement: true}
	cpus := twoProcessors(t)
	t.Setenv("POD_CPUS", cpus[0]+","+cpus[1])
	p := start(t)
	p.connected()
	if state := p.load(vmi); state.Reason != "CPUsNotDedicated" || !strings.Contains(state.Message, "has none of the 1 that it needs for itself") {
		t.Errorf("%+v", state)
	}
}

// twoProcessors are the numbers of two processors of this machine.
func twoProcessors(t *testing.T) [2]string {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var found []string
	for id := 0; id < 1024 && len(found) < 2; id++ {
		if set.IsSet(id) {
			found = append(found, strconv.Itoa(id))
		}
	}
	if len(found) < 2 {
		need.Missing(t, "it needs two processors")
	}
	return [2]string{found[0], found[1]}
}

// offerHugepages lets the kernel make huge pages of so many bytes for the time of the test, when
// they are asked for, and puts a volume of them into the pod.
func offerHugepages(t *testing.T, size int) {
	t.Helper()
	const setting = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages"
	before, err := os.ReadFile(setting)
	if err != nil {
		need.Missing(t, "it needs a kernel with huge pages of 2 MiB: %v", err)
	}
	pages, err := strconv.Atoi(strings.TrimSpace(string(before)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(setting, []byte(strconv.Itoa(pages+size>>21)), 0o644); err != nil {
		need.Missing(t, "it needs the right to have the kernel make huge pages: %v", err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(setting, before, 0o644); err != nil {
			t.Errorf("putting %s back to %s: %v", setting, before, err)
		}
	})
	t.Setenv("POD_HUGEPAGES", "1")
}

// vcpu is the thread of QEMU that is the guest's processor with number.
func vcpu(t *testing.T, qemu, number int) int {
	t.Helper()
	tasks, err := filepath.Glob(filepath.Join("/proc", itoa(qemu), "task", "*", "comm"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, task := range tasks {
		name, err := os.ReadFile(task)
		if err != nil {
			continue // it has ended
		}
		if strings.HasPrefix(string(name), "CPU "+itoa(number)+"/") {
			return atoi(t, filepath.Base(filepath.Dir(task)))
		}
		names = append(names, strings.TrimSpace(string(name)))
	}
	t.Fatalf("QEMU has no thread for processor %d, only %q", number, names)
	return 0
}

// allowed are the processors on which a thread of QEMU may run.
func allowed(t *testing.T, qemu, thread int) string {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", itoa(qemu), "task", itoa(thread), "status"))
	if err != nil {
		t.Fatal(err)
	}
	return fieldOf(string(status), "Cpus_allowed_list:")
}

// inHugepages is how much of a process's memory is in huge pages, in KiB.
func inHugepages(t *testing.T, pid int) int {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "smaps_rollup"))
	if err != nil {
		t.Fatal(err)
	}
	return atoi(t, fieldOf(string(sums), "Shared_Hugetlb:")) + atoi(t, fieldOf(string(sums), "Private_Hugetlb:"))
}

// fieldOf is the first word behind a name at the beginning of a line of text.
func fieldOf(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, name); found && strings.TrimSpace(rest) != "" {
			return strings.Fields(rest)[0]
		}
	}
	return ""
}

// table is a table of ACPI: its header, in which QEMU mends the checksum, and text.
func table(signature, text string) []byte {
	var out bytes.Buffer
	out.WriteString(signature)
	_ = binary.Write(&out, binary.LittleEndian, uint32(36+len(text)))
	out.Write([]byte{1, 0})
	out.WriteString("SLIPWYTESTDATA")
	_ = binary.Write(&out, binary.LittleEndian, uint32(1))
	out.WriteString("TEST")
	_ = binary.Write(&out, binary.LittleEndian, uint32(1))
	out.WriteString(text)
	return out.Bytes()
}
