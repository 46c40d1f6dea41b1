package hypervisor

import (
	"encoding/xml"
	"fmt"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// measured is what Stats asks of libvirt.
const measured = libvirt.DOMAIN_STATS_CPU_TOTAL | libvirt.DOMAIN_STATS_VCPU | libvirt.DOMAIN_STATS_BALLOON |
	libvirt.DOMAIN_STATS_INTERFACE | libvirt.DOMAIN_STATS_BLOCK

// Stats measures the guest. While something else is being done to it, what QEMU would have
// to be asked for is left out rather than waited for.
func (h *Hypervisor) Stats() (protocol.Stats, error) {
	guest, conn, release, err := h.held()
	if err != nil {
		return protocol.Stats{}, err
	}
	defer release()
	records, err := conn.GetAllDomainStats([]*libvirt.Domain{guest}, measured, libvirt.CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)
	if err != nil {
		return protocol.Stats{}, fmt.Errorf("measuring the guest: %w", plain(err))
	}
	defer func() {
		for _, record := range records {
			_ = record.Domain.Free()
		}
	}()
	if len(records) != 1 {
		return protocol.Stats{}, fmt.Errorf("measuring the guest: libvirt told of %d guests", len(records))
	}
	document, err := guest.GetXMLDesc(0)
	if err != nil {
		return protocol.Stats{}, fmt.Errorf("reading the guest's devices: %w", plain(err))
	}
	names, err := deviceNames(document)
	if err != nil {
		return protocol.Stats{}, err
	}
	stats := statsOf(&records[0], names)
	if allowed, err := guest.GetVcpuPinInfo(libvirt.DOMAIN_AFFECT_CURRENT); err == nil { // the rest is known without it
		stats.CPU.Affinity = new(pairs(allowed))
	}
	return stats, nil
}

// pairs counts on how many of the node's processors each virtual one may run, and adds that up.
func pairs(allowed [][]bool) uint64 {
	var count uint64
	for _, ofOne := range allowed {
		for _, may := range ofOne {
			if may {
				count++
			}
		}
	}
	return count
}

// deviceNames are the names that disks and interfaces have in the VMI, by those that libvirt
// measures them under.
func deviceNames(document string) (map[string]string, error) {
	type device struct {
		Target struct {
			Dev string `xml:"dev,attr"`
		} `xml:"target"`
		Alias struct {
			Name string `xml:"name,attr"`
		} `xml:"alias"`
	}
	var running struct {
		Disks      []device `xml:"devices>disk"`
		Interfaces []device `xml:"devices>interface"`
	}
	if err := xml.Unmarshal([]byte(document), &running); err != nil {
		return nil, fmt.Errorf("reading the guest's devices: %w", err)
	}
	names := map[string]string{}
	for _, one := range append(running.Disks, running.Interfaces...) {
		if name, ours := strings.CutPrefix(one.Alias.Name, domain.AliasPrefix); ours {
			names[one.Target.Dev] = name
		}
	}
	return names, nil
}

// statsOf puts libvirt's record into the protocol's words and units.
func statsOf(record *libvirt.DomainStats, names map[string]string) protocol.Stats {
	var out protocol.Stats
	if cpu := record.Cpu; cpu != nil {
		out.CPU = protocol.CPUStats{
			Total: known(cpu.TimeSet, cpu.Time), User: known(cpu.UserSet, cpu.User), System: known(cpu.SystemSet, cpu.System),
		}
	}
	for id, vcpu := range record.Vcpu {
		out.VCPUs = append(out.VCPUs, protocol.VCPUStats{
			ID: id, State: vcpuState(vcpu.State), Time: known(vcpu.TimeSet, vcpu.Time),
			Wait: known(vcpu.WaitSet, vcpu.Wait), Delay: known(vcpu.DelaySet, vcpu.Delay),
		})
	}
	if balloon := record.Balloon; balloon != nil {
		out.Memory = memoryOf(balloon)
	}
	for _, disk := range record.Block {
		if disk.NameSet {
			out.Disks = append(out.Disks, diskOf(disk, named(names, disk.Name)))
		}
	}
	for _, nic := range record.Net {
		if nic.NameSet {
			out.Interfaces = append(out.Interfaces, interfaceOf(nic, named(names, nic.Name)))
		}
	}
	return out
}

// memoryOf takes libvirt's KiB.
func memoryOf(b *libvirt.DomainStatsBalloon) protocol.MemoryStats {
	kibibytes := func(set bool, value uint64) *uint64 { return known(set, value<<10) }
	return protocol.MemoryStats{
		Domain: kibibytes(b.MaximumSet, b.Maximum), Balloon: kibibytes(b.CurrentSet, b.Current), Resident: kibibytes(b.RssSet, b.Rss),
		Available: kibibytes(b.AvailableSet, b.Available), Unused: kibibytes(b.UnusedSet, b.Unused),
		Usable: kibibytes(b.UsableSet, b.Usable), Cached: kibibytes(b.DiskCachesSet, b.DiskCaches),
		SwapIn: kibibytes(b.SwapInSet, b.SwapIn), SwapOut: kibibytes(b.SwapOutSet, b.SwapOut),
		MajorFaults: known(b.MajorFaultSet, b.MajorFault), MinorFaults: known(b.MinorFaultSet, b.MinorFault),
	}
}

func diskOf(d libvirt.DomainStatsBlock, name string) protocol.DiskStats {
	return protocol.DiskStats{
		Name:  name,
		Reads: known(d.RdReqsSet, d.RdReqs), ReadBytes: known(d.RdBytesSet, d.RdBytes), ReadTime: known(d.RdTimesSet, d.RdTimes),
		Writes: known(d.WrReqsSet, d.WrReqs), WriteBytes: known(d.WrBytesSet, d.WrBytes), WriteTime: known(d.WrTimesSet, d.WrTimes),
		Flushes: known(d.FlReqsSet, d.FlReqs), FlushTime: known(d.FlTimesSet, d.FlTimes),
	}
}

func interfaceOf(n libvirt.DomainStatsNet, name string) protocol.InterfaceStats {
	return protocol.InterfaceStats{
		Name:          name,
		ReceivedBytes: known(n.RxBytesSet, n.RxBytes), ReceivedPackets: known(n.RxPktsSet, n.RxPkts),
		ReceivedErrors: known(n.RxErrsSet, n.RxErrs), ReceivedDropped: known(n.RxDropSet, n.RxDrop),
		SentBytes: known(n.TxBytesSet, n.TxBytes), SentPackets: known(n.TxPktsSet, n.TxPkts),
		SentErrors: known(n.TxErrsSet, n.TxErrs), SentDropped: known(n.TxDropSet, n.TxDrop),
	}
}

func vcpuState(state libvirt.VcpuState) string {
	switch state {
	case libvirt.VCPU_OFFLINE:
		return "offline"
	case libvirt.VCPU_RUNNING:
		return "running"
	case libvirt.VCPU_BLOCKED:
		return "blocked"
	default:
		return "unknown"
	}
}

func named(names map[string]string, device string) string {
	if name := names[device]; name != "" {
		return name
	}
	return device
}

func known(set bool, value uint64) *uint64 {
	if !set {
		return nil
	}
	return &value
}

// Product is QEMU with its version, as guests are told of it.
func (h *Hypervisor) Product() (string, error) {
	_, conn, release, err := h.held()
	if err != nil {
		return "", err
	}
	defer release()
	version, err := conn.GetVersion()
	if err != nil {
		return "", fmt.Errorf("asking for QEMU's version: %w", plain(err))
	}
	return fmt.Sprintf("QEMU %d.%d.%d", version/1e6, version/1e3%1e3, version%1e3), nil
}
