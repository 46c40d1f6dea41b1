package domain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/internal/dedicated"
)

// numa makes the guest a NUMA cell for each of the node's that its processors are on, with its
// part of the memory there and nowhere else.
func numa(in Input, vcpus []HostCPU, domain *libvirtxml.Domain) error {
	size, err := pageSize(in.VMI)
	if err != nil {
		return err
	}
	if size == 0 {
		return fmt.Errorf("spec.domain.cpu.numa.guestMappingPassthrough needs spec.domain.memory.hugepages")
	}
	members := map[uint][]string{}
	for number, cpu := range vcpus {
		members[cpu.Node] = append(members[cpu.Node], strconv.Itoa(number))
	}
	nodes := slices.Sorted(maps.Keys(members))
	page := uint(size / 1024)
	pages, count := domain.Memory.Value/page, uint(len(nodes))
	if pages < count {
		return fmt.Errorf("the guest's processors are on %d NUMA nodes, and its memory is %d huge pages: give it one for each node at least", count, pages)
	}
	domain.CPU.Numa = &libvirtxml.DomainNuma{}
	var names []string
	backing := domain.MemoryBacking
	backing.MemoryHugePages.Hugepages = nil
	tune := &libvirtxml.DomainNUMATune{Memory: &libvirtxml.DomainNUMATuneMemory{Mode: "strict"}}
	for i, node := range nodes {
		cell, name := uint(i), strconv.FormatUint(uint64(node), 10)
		names = append(names, name)
		share := pages*(cell+1)/count - pages*cell/count
		domain.CPU.Numa.Cell = append(domain.CPU.Numa.Cell, libvirtxml.DomainCell{
			ID: &cell, CPUs: strings.Join(members[node], ","), Memory: share * page, Unit: "KiB",
		})
		tune.MemNodes = append(tune.MemNodes, libvirtxml.DomainNUMATuneMemNode{CellID: cell, Mode: "strict", Nodeset: name})
		backing.MemoryHugePages.Hugepages = append(backing.MemoryHugePages.Hugepages,
			libvirtxml.DomainMemoryHugepage{Size: page, Unit: "KiB", Nodeset: strconv.Itoa(i)})
	}
	tune.Memory.Nodeset = strings.Join(names, ",")
	domain.NUMATune = tune
	backing.MemoryAllocation = &libvirtxml.DomainMemoryAllocation{Mode: "immediate"}
	if dedicated.Realtime(in.VMI) {
		backing.MemoryNosharepages = &libvirtxml.DomainMemoryNosharepages{}
	}
	return nil
}
