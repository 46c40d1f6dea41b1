package metrics

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// labelPrefix begins the labels that show those of the VMI.
const labelPrefix = "kubernetes_vmi_label_"

// plainLabel turns a label of Kubernetes into what Prometheus takes for one.
var plainLabel = strings.NewReplacer(".", "_", "/", "_", "-", "_")

// series collects what is told of one VMI.
type series struct {
	vmi     []string          // values of vmiLabels
	further prometheus.Labels // the VMI's labels
	out     []prometheus.Metric
}

func newSeries(vmi *v1.VirtualMachineInstance) *series {
	s := &series{vmi: []string{vmi.Status.NodeName, vmi.Namespace, vmi.Name}, further: prometheus.Labels{}}
	for _, name := range slices.Sorted(maps.Keys(vmi.Labels)) {
		plain := labelPrefix + plainLabel.Replace(name)
		if _, taken := s.further[plain]; !taken { // a.b and a-b would be one
			s.further[plain] = vmi.Labels[name]
		}
	}
	return s
}

func (s *series) add(m metric.Metric, value float64, own ...string) {
	s.out = append(s.out, m.Value(value, append(slices.Clone(s.vmi), own...), s.further))
}

// addFields adds what is known of from.
func addFields[T any](s *series, fields []field[T], from *T, own ...string) {
	for _, one := range fields {
		if value := one.value(from); value != nil {
			s.add(one.Metric, float64(*value)/one.unit, own...)
		}
	}
}

// addStats adds all that was measured.
func (s *series) addStats(stats *protocol.Stats) {
	addFields(s, cpuFields, &stats.CPU)
	addFields(s, memoryFields, &stats.Memory)
	for i := range stats.VCPUs {
		vcpu := &stats.VCPUs[i]
		id := strconv.Itoa(vcpu.ID)
		addFields(s, []field[protocol.VCPUStats]{vcpuTime}, vcpu, id, vcpu.State)
		addFields(s, vcpuFields, vcpu, id)
	}
	for i := range stats.Disks {
		addFields(s, diskFields, &stats.Disks[i], stats.Disks[i].Name)
	}
	for i := range stats.Interfaces {
		s.addInterface(&stats.Interfaces[i])
	}
	s.addFilesystems(stats.Filesystems)
	for _, one := range loads {
		if value := one.value(&stats.Load); value != nil {
			s.add(one.Metric, *value)
		}
	}
}

func (s *series) addInterface(nic *protocol.InterfaceStats) {
	addFields(s, interfaceFields, nic, nic.Name)
	if nic.ReceivedBytes != nil {
		s.add(traffic, float64(*nic.ReceivedBytes), nic.Name, "rx")
	}
	if nic.SentBytes != nil {
		s.add(traffic, float64(*nic.SentBytes), nic.Name, "tx")
	}
}

// addFilesystems adds each once: a guest may tell twice of what it has mounted twice.
func (s *series) addFilesystems(filesystems []v1.VirtualMachineInstanceFileSystem) {
	seen := map[[3]string]bool{}
	for _, one := range filesystems {
		id := [3]string{one.DiskName, one.MountPoint, one.FileSystemType}
		if seen[id] {
			continue
		}
		seen[id] = true
		s.add(capacity, float64(one.TotalBytes), id[:]...)
		s.add(used, float64(one.UsedBytes), id[:]...)
	}
}
