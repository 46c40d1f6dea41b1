package protocol

import v1 "kubevirt.io/api/core/v1"

// Stats is what a guest used since it was started. What is not known is nil: each part of
// it comes from elsewhere, and some guests and machines do not tell.
type Stats struct {
	CPU        CPUStats         `json:"cpu"`
	VCPUs      []VCPUStats      `json:"vcpus,omitempty"`
	Memory     MemoryStats      `json:"memory"`
	Disks      []DiskStats      `json:"disks,omitempty"`
	Interfaces []InterfaceStats `json:"interfaces,omitempty"`
	// Filesystems are what the guest's agent tells; none without one.
	Filesystems []v1.VirtualMachineInstanceFileSystem `json:"filesystems,omitempty"`
	// Load is what an agent tells that knows it: QEMU's since 10.0.
	Load LoadStats `json:"load,omitzero"`
}

// LoadStats is how many processes of the guest ran, or waited for a processor or a disk, on average over a time that
// ends now.
type LoadStats struct {
	OneMinute      *float64 `json:"oneMinute,omitempty"`
	FiveMinutes    *float64 `json:"fiveMinutes,omitempty"`
	FifteenMinutes *float64 `json:"fifteenMinutes,omitempty"`
}

// CPUStats is the time in nanoseconds that all of QEMU ran, and where the guest may.
type CPUStats struct {
	Total  *uint64 `json:"total,omitempty"`
	User   *uint64 `json:"user,omitempty"`
	System *uint64 `json:"system,omitempty"`
	// Affinity counts the pairs of a virtual processor and one of the node's on which that may run.
	Affinity *uint64 `json:"affinity,omitempty"`
}

// VCPUStats is one virtual processor, with times in nanoseconds.
type VCPUStats struct {
	ID int `json:"id"`
	// State is offline, running or blocked.
	State string  `json:"state"`
	Time  *uint64 `json:"time,omitempty"`
	// Wait is how long it waited for input and output, Delay for a processor of the node.
	Wait  *uint64 `json:"wait,omitempty"`
	Delay *uint64 `json:"delay,omitempty"`
}

// MemoryStats is in bytes, but for the counts of page faults.
type MemoryStats struct {
	// Domain is what the guest was given, Balloon what its balloon leaves it of that.
	Domain  *uint64 `json:"domain,omitempty"`
	Balloon *uint64 `json:"balloon,omitempty"`
	// Resident is QEMU's own resident set on the node.
	Resident *uint64 `json:"resident,omitempty"`
	// The rest is the view of the guest, told by its balloon driver.
	Available   *uint64 `json:"available,omitempty"`
	Unused      *uint64 `json:"unused,omitempty"`
	Usable      *uint64 `json:"usable,omitempty"`
	Cached      *uint64 `json:"cached,omitempty"`
	SwapIn      *uint64 `json:"swapIn,omitempty"`
	SwapOut     *uint64 `json:"swapOut,omitempty"`
	MajorFaults *uint64 `json:"majorFaults,omitempty"`
	MinorFaults *uint64 `json:"minorFaults,omitempty"`
}

// DiskStats is one virtual disk, with times in nanoseconds.
type DiskStats struct {
	// Name is the disk's in the VMI, or the guest's where it has none there.
	Name       string  `json:"name"`
	Reads      *uint64 `json:"reads,omitempty"`
	ReadBytes  *uint64 `json:"readBytes,omitempty"`
	ReadTime   *uint64 `json:"readTime,omitempty"`
	Writes     *uint64 `json:"writes,omitempty"`
	WriteBytes *uint64 `json:"writeBytes,omitempty"`
	WriteTime  *uint64 `json:"writeTime,omitempty"`
	Flushes    *uint64 `json:"flushes,omitempty"`
	FlushTime  *uint64 `json:"flushTime,omitempty"`
}

// InterfaceStats is one network interface as the guest sees it: it receives what is
// sent to it.
type InterfaceStats struct {
	// Name is the interface's in the VMI, or that of its tap where it has none there.
	Name            string  `json:"name"`
	ReceivedBytes   *uint64 `json:"receivedBytes,omitempty"`
	ReceivedPackets *uint64 `json:"receivedPackets,omitempty"`
	ReceivedErrors  *uint64 `json:"receivedErrors,omitempty"`
	ReceivedDropped *uint64 `json:"receivedDropped,omitempty"`
	SentBytes       *uint64 `json:"sentBytes,omitempty"`
	SentPackets     *uint64 `json:"sentPackets,omitempty"`
	SentErrors      *uint64 `json:"sentErrors,omitempty"`
	SentDropped     *uint64 `json:"sentDropped,omitempty"`
}
