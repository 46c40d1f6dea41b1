package domain

import (
	"fmt"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/internal/dedicated"
)

// pinning keeps each of the guest's processors on one that the pod has for itself, and QEMU's
// other threads out of their way. It comes after disks, which say how many I/O threads there are.
func pinning(in Input, domain *libvirtxml.Domain) error {
	if !dedicated.Asked(in.VMI) {
		return nil
	}
	sockets, cores, threads := topology(in.VMI)
	mapped := dedicated.Mapped(in.VMI)
	own, err := allot(in.CPUs, sockets*cores, threads, mapped)
	if err != nil {
		return err
	}
	tune := &libvirtxml.DomainCPUTune{}
	for number, cpu := range own.vcpus {
		tune.VCPUPin = append(tune.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(number), CPUSet: idSet(cpu)})
	}
	if err := pinQEMU(in, domain.IOThreads, own, tune); err != nil {
		return err
	}
	domain.CPUTune = tune
	if dedicated.Realtime(in.VMI) {
		realtime(in, tune)
	}
	if mapped {
		return numa(in, own.vcpus, domain)
	}
	return nil
}

// pinQEMU pins the threads that are not the guest's processors. Those of a supplemental pool have
// a processor each, as has the emulator that is kept apart; other I/O threads are where that is,
// or else spread over the guest's processors.
func pinQEMU(in Input, ioThreads uint, own allotment, tune *libvirtxml.DomainCPUTune) error {
	pool := newIOThreads(in.VMI)
	next, rest := uint(1), own.rest
	if pool.spread {
		for ; next <= pool.pool; next++ {
			if len(rest) == 0 {
				return fmt.Errorf("the pod has no processor for I/O thread %d of the supplemental pool", next)
			}
			tune.IOThreadPin = append(tune.IOThreadPin, libvirtxml.DomainCPUTuneIOThreadPin{IOThread: next, CPUSet: idSet(rest[0])})
			rest = rest[1:]
		}
	}
	alone := dedicated.Emulator(in.VMI)
	if alone {
		if len(rest) == 0 {
			return fmt.Errorf("the pod has no processor for the emulator's own threads (spec.domain.cpu.isolateEmulatorThread)")
		}
		tune.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: idSet(rest[len(rest)-1])}
	}
	count := ioThreads - (next - 1)
	for i := range count {
		set := idSet(share(own.vcpus, i, count)...)
		if alone {
			set = tune.EmulatorPin.CPUSet
		}
		tune.IOThreadPin = append(tune.IOThreadPin, libvirtxml.DomainCPUTuneIOThreadPin{IOThread: next + i, CPUSet: set})
	}
	return nil
}

// share is the part of cpus that the thread with number i of count has: they are divided evenly,
// and of more threads than processors several have the same.
func share(cpus []HostCPU, i, count uint) []HostCPU {
	total := uint(len(cpus))
	if count >= total {
		return cpus[i%total : i%total+1]
	}
	return cpus[i*total/count : (i+1)*total/count]
}

// realtime puts the guest's processors, or those that the mask names, before all else that runs
// on theirs. libvirt may do so because virt-handler allowed the pod's processes to.
func realtime(in Input, tune *libvirtxml.DomainCPUTune) {
	mask := strings.ReplaceAll(in.VMI.Spec.Domain.CPU.Realtime.Mask, " ", "")
	if mask == "" {
		mask = numberSet(uint(len(tune.VCPUPin)))
	}
	tune.VCPUSched = []libvirtxml.DomainCPUTuneVCPUSched{{VCPUs: mask, Scheduler: "fifo", Priority: new(1)}}
}

// numberSet is the set of the numbers below count.
func numberSet(count uint) string {
	if count == 1 {
		return "0"
	}
	return fmt.Sprintf("0-%d", count-1)
}

// idSet is the set of the processors' numbers.
func idSet(cpus ...HostCPU) string {
	var ids []string
	for _, cpu := range cpus {
		ids = append(ids, strconv.FormatUint(uint64(cpu.ID), 10))
	}
	return strings.Join(ids, ",")
}
