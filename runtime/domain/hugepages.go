package domain

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// pageSizes are the sizes in bytes of the huge pages that x86-64 has, by the API's words for them.
var pageSizes = map[string]int64{"2Mi": 2 << 20, "1Gi": 1 << 30}

// pageSize is the size in bytes of the huge pages that the guest's memory is in; 0 for none.
func pageSize(vmi *v1.VirtualMachineInstance) (int64, error) {
	memory := vmi.Spec.Domain.Memory
	if memory == nil || memory.Hugepages == nil {
		return 0, nil
	}
	size, known := pageSizes[memory.Hugepages.PageSize]
	if !known {
		return 0, fmt.Errorf("spec.domain.memory.hugepages.pageSize %q is no size of huge pages; use 2Mi or 1Gi", memory.Hugepages.PageSize)
	}
	return size, nil
}

// hugepages backs the guest's memory with huge pages: of the kernel's own, in a file without a
// name, or, where the annotation says so, in a file on the pod's volume of them.
func hugepages(in Input, domain *libvirtxml.Domain) error {
	size, err := pageSize(in.VMI)
	if err != nil || size == 0 {
		return err
	}
	source := "memfd"
	if in.VMI.Annotations[v1.MemfdMemoryBackend] == "false" {
		source = "file"
	}
	domain.MemoryBacking = &libvirtxml.DomainMemoryBacking{
		MemoryHugePages: &libvirtxml.DomainMemoryHugepages{Hugepages: []libvirtxml.DomainMemoryHugepage{{Size: uint(size / 1024), Unit: "KiB"}}},
		MemorySource:    &libvirtxml.DomainMemorySource{Type: source},
	}
	return nil
}
