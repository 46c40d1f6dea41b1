package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// ioThreads deals out QEMU's I/O threads to virtio disks: one for each disk that
// asks for its own, and, under a policy, a pool for the others: of one thread when
// shared, of at most two for each vCPU when auto. Each disk of such a pool has one of
// its threads; of a supplemental pool, whose size the VMI says, each has all.
type ioThreads struct {
	pool, dealt, own uint
	// spread says that each disk has all threads of the pool; it needs a queue for each of them.
	spread bool
}

func newIOThreads(vmi *v1.VirtualMachineInstance) *ioThreads {
	threads := &ioThreads{}
	var pooled uint
	for i := range vmi.Spec.Domain.Devices.Disks {
		spec := &vmi.Spec.Domain.Devices.Disks[i]
		if diskBus(spec) == v1.DiskBusVirtio && !requested(spec.DedicatedIOThread) {
			pooled++
		}
	}
	policy := vmi.Spec.Domain.IOThreadsPolicy
	if policy == nil || pooled == 0 {
		return threads
	}
	threads.pool = 1
	switch *policy {
	case v1.IOThreadsPolicyAuto:
		threads.pool = min(pooled, 2*VCPUs(vmi))
	case v1.IOThreadsPolicySupplementalPool:
		threads.spread = true
		if spec := vmi.Spec.Domain.IOThreads; spec != nil && spec.SupplementalPoolThreadCount != nil {
			threads.pool = uint(*spec.SupplementalPoolThreadCount)
		}
	}
	return threads
}

// deal gives the disk of spec its threads; one without works in QEMU's main loop.
func (t *ioThreads) deal(spec *v1.Disk, driver *libvirtxml.DomainDiskDriver) {
	switch {
	case diskBus(spec) != v1.DiskBusVirtio:
	case requested(spec.DedicatedIOThread):
		t.own++
		driver.IOThread = new(t.pool + t.own)
	case t.pool == 0:
	case t.spread:
		driver.IOThreads = &libvirtxml.DomainDiskIOThreads{}
		for number := uint(1); number <= t.pool; number++ {
			driver.IOThreads.IOThread = append(driver.IOThreads.IOThread, libvirtxml.DomainDiskIOThread{ID: number})
		}
		if driver.Queues == nil || *driver.Queues < t.pool {
			driver.Queues = new(t.pool)
		}
	default:
		driver.IOThread = new(t.dealt%t.pool + 1)
		t.dealt++
	}
}

// count is how many threads the disks use.
func (t *ioThreads) count() uint { return t.pool + t.own }
