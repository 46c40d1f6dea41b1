package domain

import v1 "kubevirt.io/api/core/v1"

// ioThreads deals out QEMU's I/O threads to virtio disks: one for each disk that
// asks for its own, and, under a policy, a pool for the others: of one thread when
// shared, of at most two for each vCPU when auto.
type ioThreads struct {
	pool, dealt, own uint
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
	if policy := vmi.Spec.Domain.IOThreadsPolicy; policy != nil && pooled > 0 {
		threads.pool = 1
		if *policy == v1.IOThreadsPolicyAuto {
			threads.pool = min(pooled, 2*VCPUs(vmi))
		}
	}
	return threads
}

// of returns the number of the disk's thread, nil for QEMU's main loop.
func (t *ioThreads) of(spec *v1.Disk) *uint {
	if diskBus(spec) != v1.DiskBusVirtio {
		return nil
	}
	var number uint
	switch {
	case requested(spec.DedicatedIOThread):
		t.own++
		number = t.pool + t.own
	case t.pool == 0:
		return nil
	default:
		number = t.dealt%t.pool + 1
		t.dealt++
	}
	return &number
}

// count is how many threads the disks use.
func (t *ioThreads) count() uint { return t.pool + t.own }
