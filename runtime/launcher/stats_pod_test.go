//go:build integration

package launcher_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// stats measures the guest. What libvirt would have had to ask QEMU for while it was asked something else is left out, so that is
// measured again.
func (p *pod) stats(t *testing.T) (stats protocol.Stats) {
	t.Helper()
	p.retry("measuring the guest", func() error {
		stats = protocol.Stats{}
		began := time.Now()
		if err := p.conn.Call(t.Context(), protocol.TypeStats, nil, &stats); err != nil {
			return err
		}
		t.Logf("measured in %s", time.Since(began))
		partial := func(disk protocol.DiskStats) bool { return disk.ReadBytes == nil || disk.WriteBytes == nil }
		if stats.Memory.Balloon == nil || len(stats.Disks) == 0 || slices.ContainsFunc(stats.Disks, partial) {
			return fmt.Errorf("only this is known: %+v", stats)
		}
		return nil
	})
	return stats
}

// between says whether a value is known and within bounds.
func between(t *testing.T, what string, value *uint64, least, most uint64) {
	t.Helper()
	if value == nil {
		t.Errorf("%s is not known", what)
	} else if *value < least || *value > most {
		t.Errorf("%s is %d, want %d to %d", what, *value, least, most)
	}
}

// measured follows agentTells, which mounts a file system.
func (p *pod) measured(t *testing.T) {
	const guest = 128 << 20
	before := p.stats(t)
	p.exec("for i in $(seq 20000); do :; done; dd if=/dev/zero of=/mnt/zeros bs=1M count=8 && sync; ping -c 2 -W 2 10.0.2.1 || true")
	after := p.stats(t)

	between(t, "CPU time", before.CPU.Total, 1, uint64(time.Hour))
	between(t, "CPU time later", after.CPU.Total, *before.CPU.Total+1, uint64(time.Hour))
	between(t, "user time", after.CPU.User, 1, *after.CPU.Total)
	between(t, "memory of the domain", after.Memory.Domain, guest, guest)
	between(t, "balloon", after.Memory.Balloon, guest/2, guest)
	between(t, "resident memory", after.Memory.Resident, 16<<20, 4*guest)
	p.measuredMemory(t)
	between(t, "processors that the guest may run on", after.CPU.Affinity, uint64(runtime.NumCPU()), 1<<16)
	if load := after.Load; load.OneMinute == nil || load.FiveMinutes == nil || load.FifteenMinutes == nil || *load.OneMinute <= 0 || *load.OneMinute > 100 {
		t.Errorf("the guest's load %+v", load)
	}
	if len(after.VCPUs) != 1 {
		t.Errorf("virtual processors %+v", after.VCPUs)
	}

	disk := func(name string, stats protocol.Stats) protocol.DiskStats {
		at := slices.IndexFunc(stats.Disks, func(d protocol.DiskStats) bool { return d.Name == name })
		if at < 0 {
			t.Fatalf("there is no disk %s: %+v", name, stats.Disks)
		}
		return stats.Disks[at]
	}
	between(t, "reads of the root disk", disk("root", after).ReadBytes, 1<<20, 1<<40)
	between(t, "writes to scratch", disk("scratch", after).WriteBytes, *disk("scratch", before).WriteBytes+8<<20, 1<<40)
	between(t, "flushes of scratch", disk("scratch", after).Flushes, 1, 1<<40)

	if len(after.Interfaces) != 1 || after.Interfaces[0].Name != "default" {
		t.Fatalf("interfaces %+v", after.Interfaces)
	}
	// The guest sees what the tap sends: DHCP's answers are received, its questions sent.
	between(t, "sent packets", after.Interfaces[0].SentPackets, *before.Interfaces[0].SentPackets+1, 1<<40)
	between(t, "received bytes", after.Interfaces[0].ReceivedBytes, 300, 1<<40)

	p.retry("the file systems are measured", func() error { // an agent that is slow is left out, and then let alone for a minute
		found := p.stats(t).Filesystems
		mounted := slices.IndexFunc(found, func(f v1.VirtualMachineInstanceFileSystem) bool { return f.MountPoint == "/mnt" })
		if mounted < 0 || found[mounted].UsedBytes < 8<<20 || found[mounted].TotalBytes > 64<<20 {
			return fmt.Errorf("they are %+v", found)
		}
		return nil
	})
	p.measuredAtOnce(t)
}

// measuredMemory waits for the guest's driver, which tells of its memory now and then.
func (p *pod) measuredMemory(t *testing.T) {
	var stats protocol.Stats
	p.retry("the guest's driver tells of its memory", func() error {
		if stats = p.stats(t); stats.Memory.Available == nil {
			return fmt.Errorf("it told only %+v", stats.Memory)
		}
		return nil
	})
	between(t, "available memory", stats.Memory.Available, 32<<20, 128<<20)
	between(t, "unused memory", stats.Memory.Unused, 1<<20, *stats.Memory.Available)
	between(t, "usable memory", stats.Memory.Usable, 1<<20, *stats.Memory.Available)
	between(t, "page faults", stats.Memory.MinorFaults, 1, 1<<40)
}

// measuredAtOnce asks many times at once: who is refused is told so, and nothing breaks.
func (p *pod) measuredAtOnce(t *testing.T) {
	var asking sync.WaitGroup
	answered := make(chan bool, 50)
	for range cap(answered) {
		asking.Go(func() { answered <- p.conn.Call(t.Context(), protocol.TypeStats, nil, nil) == nil })
	}
	asking.Wait()
	close(answered)
	somebody := false
	for one := range answered {
		somebody = somebody || one
	}
	if !somebody {
		t.Error("of many who ask at once nobody is answered")
	}
	p.stats(t)
}
