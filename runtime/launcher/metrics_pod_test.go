//go:build integration

package launcher_test

import (
	"fmt"
	"strings"
	"testing"

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
	p.until("the agent's report", agentUp)

	if got := p.exec("cat /sys/block/vdd/size /sys/block/vdd/ro; head -c 4 /dev/vdd").Stdout; got != "512\n1\nmvbd" {
		t.Errorf("the disk of metrics is %q", got)
	}
	const read = "echo 3 > /proc/sys/vm/drop_caches; dd if=/dev/vdd bs=16 skip=1 count=1023 2>/dev/null | tr -d '\\000'"
	var first string
	p.retry("the disk is written", func() error { // also while it is being written just then
		first = p.exec(read).Stdout
		return told("the disk", first)
	})
	p.retry("the disk is written anew", func() error {
		if second := p.exec(read).Stdout; second == first {
			return fmt.Errorf("the disk has the same:\n%s", second)
		}
		return nil
	})

	port := p.exec(`
until name=$(grep -l '^org.github.vhostmd.1$' /sys/class/virtio-ports/*/name); do sleep 0.2; done
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
	for i, where := range []string{"the port", "the port, asked again,"} {
		if err := told(where, answers[i]); err != nil {
			t.Error(err)
		}
	}
}

// told wants a document with all metrics that there are.
func told(where, document string) error {
	for _, want := range []string{
		"HostName", "HostSystemInfo", "VirtualizationVendor", "VirtProductInfo", "ResourceProcessorLimit", "TotalCPUTime",
		"PhysicalMemoryAllocatedToVirtualSystem", "ResourceMemoryLimit", "NumberOfPhysicalCPUs", "FreePhysicalMemory", "FreeVirtualMemory",
		"MemoryAllocatedToVirtualServers", "UsedVirtualMemory", "PagedInMemory", "PagedOutMemory", "Time",
	} {
		if !strings.Contains(document, "<name>"+want+"</name>") {
			return fmt.Errorf("%s does not tell %s", where, want)
		}
	}
	if !strings.Contains(document, "<![CDATA[here]]>") || !strings.Contains(document, "<![CDATA[131072]]>") || !strings.Contains(document, "<![CDATA[QEMU 1") {
		return fmt.Errorf("%s tells %s", where, document)
	}
	return nil
}
