//go:build integration

package launcher_test

import (
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// TestAGuestReadsMetricsOfItsNode reads both ways by which a guest is told: its disk, twice, for it is
// written anew, and its port.
func TestAGuestReadsMetricsOfItsNode(t *testing.T) {
	p := start(t)
	p.connected()
	vmi := guest()
	vmi.Spec.Domain.Devices.DownwardMetrics = &v1.DownwardMetrics{}
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "metrics", VolumeSource: v1.VolumeSource{DownwardMetrics: &v1.DownwardMetricsVolumeSource{}}})
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks,
		v1.Disk{Name: "metrics", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}}) // vdd
	state, err := p.sync(vmi)
	if err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("state %+v, %v", state, err)
	}
	p.until("the agent's report", 3*time.Minute, agentUp)

	if got := p.exec("cat /sys/block/vdd/size /sys/block/vdd/ro; head -c 4 /dev/vdd").Stdout; got != "512\n1\nmvbd" {
		t.Errorf("the disk of metrics is %q", got)
	}
	const read = "echo 3 > /proc/sys/vm/drop_caches; dd if=/dev/vdd bs=16 skip=1 count=1023 2>/dev/null | tr -d '\\000'"
	first := p.exec(read).Stdout
	told(t, "the disk", first)
	p.exec("sleep 6")
	if second := p.exec(read).Stdout; second == first {
		t.Errorf("the disk has the same after six seconds:\n%s", second)
	}

	p.exec("ls -l /dev/virtio-ports/ /dev/vport*; cat /sys/class/virtio-ports/*/name")
	port := p.exec(`
name=$(grep -l '^org.github.vhostmd.1$' /sys/class/virtio-ports/*/name)
exec 3<>/dev/$(basename $(dirname $name)) || exit 1
for i in 1 2; do
  printf 'GET /metrics/XML\n\n' >&3
  while read -r line <&3; do [ -n "$line" ] || break; echo "$line"; done
done
printf 'PUT /metrics/XML\n\n' >&3; read -r line <&3; echo "$line"`)
	answers := strings.SplitAfter(port.Stdout, "</metrics>\n")
	if len(answers) != 3 || answers[2] != "INVALID REQUEST\n" {
		t.Fatalf("the port answered %+v", port)
	}
	told(t, "the port", answers[0])
	told(t, "the port, asked again,", answers[1])
}

// told wants a document with all metrics that there are.
func told(t *testing.T, where, document string) {
	t.Helper()
	for _, want := range []string{
		"HostName", "HostSystemInfo", "VirtualizationVendor", "VirtProductInfo", "ResourceProcessorLimit", "TotalCPUTime",
		"PhysicalMemoryAllocatedToVirtualSystem", "ResourceMemoryLimit", "NumberOfPhysicalCPUs", "FreePhysicalMemory", "FreeVirtualMemory",
		"MemoryAllocatedToVirtualServers", "UsedVirtualMemory", "PagedInMemory", "PagedOutMemory", "Time",
	} {
		if !strings.Contains(document, "<name>"+want+"</name>") {
			t.Errorf("%s does not tell %s", where, want)
		}
	}
	if !strings.Contains(document, "<![CDATA[here]]>") || !strings.Contains(document, "<![CDATA[131072]]>") || !strings.Contains(document, "<![CDATA[QEMU 1") {
		t.Errorf("%s tells %s", where, document)
	}
}
