//go:build integration

package launcher_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// seen is a guest with a device of each kind that it tells of itself.
func seen() *v1.VirtualMachineInstance {
	vmi := guest()
	devices := &vmi.Spec.Domain.Devices
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 1, Cores: 2, Threads: 1, Features: []v1.CPUFeature{{Name: "aes", Policy: "disable"}}}
	zone := v1.ClockOffsetTimezone("Asia/Tokyo")
	vmi.Spec.Domain.Clock = &v1.Clock{ClockOffset: v1.ClockOffset{Timezone: &zone}}
	devices.BlockMultiQueue = new(true)
	devices.Inputs = []v1.Input{{Name: "tablet", Type: v1.InputTypeTablet, Bus: v1.InputBusVirtio}}
	devices.Disks[0].BootOrder = new(uint(1))
	devices.Disks[2].BootOrder = new(uint(2))
	for _, disk := range []v1.Disk{
		{Name: "stick", Serial: "stick", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusUSB}}},
		{Name: "blocks", Serial: "blocks", BlockSize: &v1.BlockSize{Custom: &v1.CustomBlockSize{Logical: 4096, Physical: 8192}}},
		{Name: "back", Serial: "back", Cache: v1.CacheWriteBack}, {Name: "through", Serial: "through", Cache: v1.CacheWriteThrough},
		{Name: "native", Serial: "native", IO: v1.IONative},
	} {
		if disk.Disk == nil {
			disk.DiskDevice = v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}
		}
		devices.Disks = append(devices.Disks, disk)
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: disk.Name, VolumeSource: v1.VolumeSource{
			EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("8Mi")},
		}})
	}
	return vmi
}

// bySerial is the folder below /sys/block of the virtio disk with a serial number, for the guest's shell.
func bySerial(serial string) string {
	return "$(dirname $(grep -lx " + serial + " /sys/block/vd*/serial))"
}

// switchOn has the guest use all of its processors: its kernel goes on without one that a busy host gave no time to begin.
const switchOn = "for c in /sys/devices/system/cpu/cpu[0-9]*/online; do [ $(cat $c) = 1 ] || echo 1 >$c; done 2>/dev/null"

// answering starts vmi and waits for its agent.
//
// While a guest of several processors boots, QEMU's emulator may abort: a processor may have looked a device's memory up, waited for
// another one that changed where that lies, and then use what it found before. Or it may lose the timer of an idle processor, so that
// the guest waits for ever, of which its kernel tells. Both happen to few and only under emulation, on a busy host; such a guest is started
// again, as a VM is.
func answering(t *testing.T, vmi *v1.VirtualMachineInstance) *pod {
	t.Helper()
	const aborted = "iotlb_to_section: Assertion"
	for tries := 3; ; tries-- {
		p := start(t)
		p.connected()
		if state, err := p.sync(vmi); err != nil || state.Phase != protocol.PhaseRunning {
			t.Fatalf("state %+v, %v", state, err)
		}
		state := p.until("the agent's report", func(state protocol.State) bool {
			return agentUp(state) || state.Phase == protocol.PhaseCrashed || p.lostTimer()
		})
		switch {
		case agentUp(state):
			return p
		case tries > 0 && p.lostTimer():
			t.Log("starting the guest again: the emulator lost the timer of one of its processors")
			p.end()
		case tries > 0 && strings.Contains(state.Message, aborted):
			t.Logf("starting the guest again: %s", state.Message)
		default:
			t.Fatalf("the guest has no agent: %+v; its console ends with %q", state, p.consoleEnd())
		}
	}
}

// lostTimer says whether the guest's kernel found twice, a minute apart, that the timer of a processor does not run. Once may be the
// host's doing, which had no time for QEMU.
func (p *pod) lostTimer() bool {
	return strings.Count(p.out.String(), "Possible timer handling issue on cpu=") > 1
}

// TestAGuestSeesItsDevices shows that what the VMI asks for is what the guest finds, and not only what
// QEMU takes.
func TestAGuestSeesItsDevices(t *testing.T) {
	p := answering(t, seen())
	p.exec(switchOn)
	for what, c := range map[string]struct{ command, want string }{
		"random numbers":                  {"head -c 16 /dev/hwrng | wc -c", "16"},
		"where those come from":           {"cut -d. -f1 /sys/class/misc/hw_random/rng_current", "virtio_rng"},
		"a queue for each processor":      {"ls /sys/block/vda/mq | wc -l", "2"},
		"a bus for the disk on USB":       {"cat $(dirname $(grep -lx 0x000d /sys/bus/pci/devices/*/device))/class", "0x0c0330"},
		"blocks as they are asked for":    {"cd " + bySerial("blocks") + "/queue && echo $(cat logical_block_size physical_block_size)", "4096 8192"},
		"blocks that nobody asks for":     {"cd " + bySerial("native") + "/queue && cat logical_block_size", "512"},
		"a cache that is written back":    {"cat " + bySerial("back") + "/queue/write_cache", "write back"},
		"a cache that is written through": {"cat " + bySerial("through") + "/queue/write_cache", "write through"},
		"a disk past the cache":           {"dd if=/dev/zero of=/dev/$(basename " + bySerial("native") + ") bs=4k count=1 conv=fsync 2>/dev/null && echo written", "written"},
		"processors of one socket":        {"grep -c '^physical id.*: 0$' /proc/cpuinfo", "2"},
		"cores of a processor":            {"grep -m1 '^cpu cores' /proc/cpuinfo | grep -o '[0-9]*'", "2"},
		"a processor without a feature":   {"grep -m1 '^flags' /proc/cpuinfo | grep -cw aes", "0"},
		"a tablet":                        {"grep -A4 Tablet /proc/bus/input/devices | grep -o 'event[0-9]*' | head -n 1 | sed 's|[0-9]*$||'", "event"},
	} {
		p.retry(what, func() error { // the agent answers before the guest has found all that it has
			if got := p.exec(c.command); strings.TrimSpace(got.Stdout) != c.want {
				return fmt.Errorf("the guest says %q (%s, exit code %d), want %q", got.Stdout, got.Stderr, got.ExitCode, c.want)
			}
			return nil
		})
	}
	p.clockAhead(9 * time.Hour) // the time in Tokyo
}

// clockAhead checks that the guest's clock, as its firmware has it, is ahead of UTC.
func (p *pod) clockAhead(want time.Duration) {
	p.t.Helper()
	p.retry("the guest's clock", func() error {
		got := p.exec("cat /sys/class/rtc/rtc0/date /sys/class/rtc/rtc0/time | tr '\\n' ' '")
		clock, err := time.Parse("2006-01-02 15:04:05", strings.TrimSpace(got.Stdout))
		if err != nil {
			return fmt.Errorf("it says %q (%s): %w", got.Stdout, got.Stderr, err)
		}
		if ahead := time.Until(clock); (ahead - want).Abs() > 5*time.Minute {
			return fmt.Errorf("it is %s ahead of UTC, want %s", ahead, want)
		}
		return nil
	})
}

// TestAClockIsAsFarAheadAsItIsToBe shows an offset of the guest's clock.
func TestAClockIsAsFarAheadAsItIsToBe(t *testing.T) {
	vmi := guest()
	vmi.Spec.Domain.Clock = &v1.Clock{ClockOffset: v1.ClockOffset{UTC: &v1.ClockOffsetUTC{OffsetSeconds: new(7200)}}}
	answering(t, vmi).clockAhead(2 * time.Hour)
}

// TestTheFirstDiskInOrderIsBooted shows that a guest boots its second disk where that is the first in order: the
// other one has nothing on it.
func TestTheFirstDiskInOrderIsBooted(t *testing.T) {
	vmi := guest()
	disks := vmi.Spec.Domain.Devices.Disks
	disks[0], disks[2] = disks[2], disks[0]
	disks[0].BootOrder, disks[2].BootOrder = new(uint(2)), new(uint(1))
	p := answering(t, vmi)
	if got := p.exec("cat /sys/block/vda/size"); strings.TrimSpace(got.Stdout) != "131072" {
		t.Errorf("the first disk has %q sectors, want those of 64 MiB", got.Stdout)
	}
}

// bite sets the watchdog to two stages of about a second, and feeds it no more. The guest's kernel, which is for
// clouds, has no driver for the device: it is told by its registers.
const bite = `cd $(dirname $(grep -lx 0x25ab /sys/bus/pci/devices/*/device)) && echo 1 >enable && bar=$(head -n 1 resource | cut -d' ' -f1) &&
for timer in 0 4; do
	devmem $((bar + 12)) 16 0x80 && devmem $((bar + 12)) 16 0x86 && devmem $((bar + timer)) 32 1000 || exit 1
done
(sleep 1; printf '\002' | dd of=config bs=1 seek=104 count=1 conv=notrunc) >/dev/null 2>&1 </dev/null &`

// TestAWatchdogThatIsNotFedEndsTheRun shows what a watchdog does once the guest has set it and says no more.
func TestAWatchdogThatIsNotFedEndsTheRun(t *testing.T) {
	vmi := guest()
	vmi.Spec.Domain.Devices.Watchdog = &v1.Watchdog{Name: "dog", WatchdogDevice: v1.WatchdogDevice{
		I6300ESB: &v1.I6300ESBWatchdog{Action: v1.WatchdogActionPoweroff},
	}}
	p := answering(t, vmi)
	p.execLast(bite)
	p.until("the watchdog's bite", func(state protocol.State) bool {
		return state.Phase == protocol.PhaseShutdown || state.Phase == protocol.PhaseCrashed
	})
}
