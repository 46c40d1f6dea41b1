package domain

import (
	"cmp"
	"fmt"
	"slices"
)

// HostCPU is a processor of the node.
type HostCPU struct {
	// ID is the kernel's number of the processor, Core that of the first one of its core, and
	// Node that of its NUMA node.
	ID, Core, Node uint
}

// allotment is what the pod's own processors are for.
type allotment struct {
	// vcpus has the processor of each of the guest's, in their order.
	vcpus []HostCPU
	// rest is left for QEMU's own threads.
	rest []HostCPU
}

// allot deals out the pod's own processors to a guest of so many cores with so many threads each.
// The threads of a core are on those of a core of the node; where that has none left, on
// processors of one NUMA node; and then, unless the guest is to see these nodes, on any.
func allot(cpus []HostCPU, cores, threads uint, mapped bool) (allotment, error) {
	left := slices.Clone(cpus)
	slices.SortFunc(left, func(a, b HostCPU) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Core, b.Core), cmp.Compare(a.ID, b.ID))
	})
	levels := []func(HostCPU) uint{
		func(c HostCPU) uint { return c.Core },
		func(c HostCPU) uint { return c.Node },
	}
	if !mapped {
		levels = append(levels, func(HostCPU) uint { return 0 })
	}
	var dealt []HostCPU
	for _, level := range levels {
		var taken []HostCPU
		taken, left = takeTogether(left, int(threads), int(cores*threads)-len(dealt), level)
		dealt = append(dealt, taken...)
	}
	if missing := int(cores*threads) - len(dealt); missing > 0 {
		return allotment{}, fmt.Errorf("the pod has %d processors for itself, in which %d of the guest's do not fit so that the threads of a core are together",
			len(cpus), missing)
	}
	return allotment{vcpus: dealt, rest: left}, nil
}

// takeTogether takes from cpus, which are in order, groups of size that are the same by level, up
// to most processors. It returns what it took and what is left.
func takeTogether(cpus []HostCPU, size, most int, level func(HostCPU) uint) (taken, left []HostCPU) {
	for start := 0; start < len(cpus); {
		end := start + 1
		for end < len(cpus) && level(cpus[end]) == level(cpus[start]) {
			end++
		}
		count := min((end-start)/size*size, most-len(taken))
		taken = append(taken, cpus[start:start+count]...)
		left = append(left, cpus[start+count:end]...)
		start = end
	}
	return taken, left
}
