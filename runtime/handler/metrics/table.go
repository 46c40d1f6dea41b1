package metrics

import (
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Every series names its VMI so, before its own labels.
var vmiLabels = []string{"node", "namespace", "name"}

// field is a metric and where its value is in T; unit is what the metric's is in the protocol's.
type field[T any] struct {
	metric.Metric
	value func(*T) *uint64
	unit  float64
}

const (
	asIs   = 1
	second = 1e9 // in nanoseconds
)

// gauge, counter and seconds make fields of a group, whose own labels are given to series.
func gauge[T any](name, help string, value func(*T) *uint64, own ...string) field[T] {
	return field[T]{metric.Metric{Name: name, Kind: metric.Gauge, Help: help, Labels: labels(own)}, value, asIs}
}

func counter[T any](name, help string, value func(*T) *uint64, own ...string) field[T] {
	return field[T]{metric.Metric{Name: name, Kind: metric.Counter, Help: help, Labels: labels(own)}, value, asIs}
}

func seconds[T any](name, help string, value func(*T) *uint64, own ...string) field[T] {
	return field[T]{metric.Metric{Name: name, Kind: metric.Counter, Help: help, Labels: labels(own)}, value, second}
}

func labels(own []string) []string { return append(append([]string{}, vmiLabels...), own...) }

var cpuFields = []field[protocol.CPUStats]{
	seconds("kubevirt_vmi_cpu_usage_seconds_total", "Processor time that QEMU used: the guest's and its own.",
		func(s *protocol.CPUStats) *uint64 { return s.Total }),
	seconds("kubevirt_vmi_cpu_user_usage_seconds_total", "Processor time that QEMU used outside of the node's kernel.",
		func(s *protocol.CPUStats) *uint64 { return s.User }),
	seconds("kubevirt_vmi_cpu_system_usage_seconds_total", "Processor time that QEMU used in the node's kernel.",
		func(s *protocol.CPUStats) *uint64 { return s.System }),
	gauge("kubevirt_vmi_node_cpu_affinity", "Pairs of a virtual processor and one of the node's on which that may run. Of a guest that is bound to none, each may run on all.",
		func(s *protocol.CPUStats) *uint64 { return s.Affinity }),
}

// vcpuTime has a label more than the others: what the processor does now.
var vcpuTime = seconds("kubevirt_vmi_vcpu_seconds_total",
	"Time that a virtual processor ran; `state`, what it does now, is `running`, `blocked` or `offline`. Known with KVM only.",
	func(s *protocol.VCPUStats) *uint64 { return s.Time }, "id", "state")

var vcpuFields = []field[protocol.VCPUStats]{
	seconds("kubevirt_vmi_vcpu_wait_seconds_total", "Time that a virtual processor waited for input and output. Known with KVM only.",
		func(s *protocol.VCPUStats) *uint64 { return s.Wait }, "id"),
	seconds("kubevirt_vmi_vcpu_delay_seconds_total", "Time that a virtual processor could run and waited for one of the node's. Known with KVM only.",
		func(s *protocol.VCPUStats) *uint64 { return s.Delay }, "id"),
}

var memoryFields = []field[protocol.MemoryStats]{
	gauge("kubevirt_vmi_memory_domain_bytes", "Memory that the guest was given.",
		func(s *protocol.MemoryStats) *uint64 { return s.Domain }),
	gauge("kubevirt_vmi_memory_actual_balloon_bytes", "Memory that its balloon leaves to the guest.",
		func(s *protocol.MemoryStats) *uint64 { return s.Balloon }),
	gauge("kubevirt_vmi_memory_resident_bytes", "Memory of the node that QEMU occupies.",
		func(s *protocol.MemoryStats) *uint64 { return s.Resident }),
	gauge("kubevirt_vmi_memory_available_bytes", "Memory that the guest's system manages, used or not.",
		func(s *protocol.MemoryStats) *uint64 { return s.Available }),
	gauge("kubevirt_vmi_memory_unused_bytes", "Memory that the guest uses for nothing, not even caches.",
		func(s *protocol.MemoryStats) *uint64 { return s.Unused }),
	gauge("kubevirt_vmi_memory_usable_bytes", "Memory that the guest could give to new programs without swapping.",
		func(s *protocol.MemoryStats) *uint64 { return s.Usable }),
	gauge("kubevirt_vmi_memory_cached_bytes", "Memory in which the guest caches disks, and which it can free.",
		func(s *protocol.MemoryStats) *uint64 { return s.Cached }),
	gauge("kubevirt_vmi_memory_swap_in_traffic_bytes", "What the guest read from its swap space so far.",
		func(s *protocol.MemoryStats) *uint64 { return s.SwapIn }),
	gauge("kubevirt_vmi_memory_swap_out_traffic_bytes", "What the guest wrote to its swap space so far.",
		func(s *protocol.MemoryStats) *uint64 { return s.SwapOut }),
	counter("kubevirt_vmi_memory_pgmajfault_total", "Page faults in the guest that had to wait for a disk.",
		func(s *protocol.MemoryStats) *uint64 { return s.MajorFaults }),
	counter("kubevirt_vmi_memory_pgminfault_total", "Page faults in the guest that needed no disk.",
		func(s *protocol.MemoryStats) *uint64 { return s.MinorFaults }),
}

var diskFields = []field[protocol.DiskStats]{
	counter("kubevirt_vmi_storage_iops_read_total", "Reads of a disk.",
		func(s *protocol.DiskStats) *uint64 { return s.Reads }, "drive"),
	counter("kubevirt_vmi_storage_iops_write_total", "Writes to a disk.",
		func(s *protocol.DiskStats) *uint64 { return s.Writes }, "drive"),
	counter("kubevirt_vmi_storage_read_traffic_bytes_total", "What was read from a disk.",
		func(s *protocol.DiskStats) *uint64 { return s.ReadBytes }, "drive"),
	counter("kubevirt_vmi_storage_write_traffic_bytes_total", "What was written to a disk.",
		func(s *protocol.DiskStats) *uint64 { return s.WriteBytes }, "drive"),
	seconds("kubevirt_vmi_storage_read_times_seconds_total", "Time that reads of a disk took, added up.",
		func(s *protocol.DiskStats) *uint64 { return s.ReadTime }, "drive"),
	seconds("kubevirt_vmi_storage_write_times_seconds_total", "Time that writes to a disk took, added up.",
		func(s *protocol.DiskStats) *uint64 { return s.WriteTime }, "drive"),
	counter("kubevirt_vmi_storage_flush_requests_total", "Requests to make a disk's writes safe.",
		func(s *protocol.DiskStats) *uint64 { return s.Flushes }, "drive"),
	seconds("kubevirt_vmi_storage_flush_times_seconds_total", "Time that making a disk's writes safe took, added up.",
		func(s *protocol.DiskStats) *uint64 { return s.FlushTime }, "drive"),
}

// traffic is the older form of two of the fields below, with the direction as a label.
var traffic = metric.Metric{
	Name: "kubevirt_vmi_network_traffic_bytes_total", Kind: metric.Counter, Labels: labels([]string{"interface", "type"}),
	Help: "What an interface received (`type` is `rx`) and sent (`tx`). Deprecated: there is a metric for each.",
}

var interfaceFields = []field[protocol.InterfaceStats]{
	counter("kubevirt_vmi_network_receive_bytes_total", "What the guest received on an interface.",
		func(s *protocol.InterfaceStats) *uint64 { return s.ReceivedBytes }, "interface"),
	counter("kubevirt_vmi_network_receive_packets_total", "Packets that the guest received on an interface.",
		func(s *protocol.InterfaceStats) *uint64 { return s.ReceivedPackets }, "interface"),
	counter("kubevirt_vmi_network_receive_errors_total", "Packets to the guest that were faulty.",
		func(s *protocol.InterfaceStats) *uint64 { return s.ReceivedErrors }, "interface"),
	counter("kubevirt_vmi_network_receive_packets_dropped_total", "Packets to the guest that were dropped.",
		func(s *protocol.InterfaceStats) *uint64 { return s.ReceivedDropped }, "interface"),
	counter("kubevirt_vmi_network_transmit_bytes_total", "What the guest sent on an interface.",
		func(s *protocol.InterfaceStats) *uint64 { return s.SentBytes }, "interface"),
	counter("kubevirt_vmi_network_transmit_packets_total", "Packets that the guest sent on an interface.",
		func(s *protocol.InterfaceStats) *uint64 { return s.SentPackets }, "interface"),
	counter("kubevirt_vmi_network_transmit_errors_total", "Packets of the guest that were faulty.",
		func(s *protocol.InterfaceStats) *uint64 { return s.SentErrors }, "interface"),
	counter("kubevirt_vmi_network_transmit_packets_dropped_total", "Packets of the guest that were dropped.",
		func(s *protocol.InterfaceStats) *uint64 { return s.SentDropped }, "interface"),
}

var filesystemLabels = labels([]string{"disk_name", "mount_point", "file_system_type"})

var (
	capacity = metric.Metric{
		Name: "kubevirt_vmi_filesystem_capacity_bytes", Kind: metric.Gauge, Labels: filesystemLabels,
		Help: "Size of a file system in the guest, as its agent tells.",
	}
	used = metric.Metric{
		Name: "kubevirt_vmi_filesystem_used_bytes", Kind: metric.Gauge, Labels: filesystemLabels,
		Help: "What is used of a file system in the guest, as its agent tells.",
	}
	measured = metric.Metric{
		Name: "slipway_vmi_measured", Kind: metric.Gauge, Labels: labels([]string{"reason"}),
		Help: "1 when this scrape could measure the guest. 0 when not; then `reason` is `old_launcher` (restart the VM), " +
			"`away` (the launcher is not connected), `silent` (it did not answer in time) or `failed` (see virt-handler's log).",
	}
)

// load is an average over a time that ends now, and where its value is.
type load struct {
	metric.Metric
	value func(*protocol.LoadStats) *float64
}

func loadOver(name, minutes string, value func(*protocol.LoadStats) *float64) load {
	help := "How many processes of the guest ran or waited to, for a processor or a disk, on average over " + minutes + ", as its agent tells (QEMU's since 10.0)."
	return load{metric.Metric{Name: name, Kind: metric.Gauge, Help: help, Labels: labels(nil)}, value}
}

var loads = []load{
	loadOver("kubevirt_vmi_guest_load_1m", "a minute", func(s *protocol.LoadStats) *float64 { return s.OneMinute }),
	loadOver("kubevirt_vmi_guest_load_5m", "five minutes", func(s *protocol.LoadStats) *float64 { return s.FiveMinutes }),
	loadOver("kubevirt_vmi_guest_load_15m", "fifteen minutes", func(s *protocol.LoadStats) *float64 { return s.FifteenMinutes }),
}

// All lists what the handler exports of guests.
func All() []metric.Metric {
	all := []metric.Metric{measured, vcpuTime.Metric, traffic, capacity, used}
	for _, one := range loads {
		all = append(all, one.Metric)
	}
	all = appendFields(all, cpuFields)
	all = appendFields(all, vcpuFields)
	all = appendFields(all, memoryFields)
	all = appendFields(all, diskFields)
	return appendFields(all, interfaceFields)
}

func appendFields[T any](to []metric.Metric, fields []field[T]) []metric.Metric {
	for _, one := range fields {
		to = append(to, one.Metric)
	}
	return to
}
