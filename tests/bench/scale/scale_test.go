//go:build e2e

// Package scale measures virt-controller with more virtual machines than a machine can run: an API
// server of its own, nodes that are objects and no more, and this program in the roles of the
// scheduler, the kubelets and the virt-handlers. These write what the real ones write, at once;
// kwok would do the same for pods, but is a program with a container runtime's worth of modules,
// and would leave the handler's part to do.
//
//	make bench BENCH_ARGS='-bench Simulated'             1,000 machines
//	VMIS=10000 make bench BENCH_ARGS='-bench Simulated'  10,000 machines
package scale

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/tests/bench/goal"
)

// machines is how many virtual machines there are unless VMIS says another number.
const machines = 1000

// later is how many more come afterwards, one each pace: what a controller with so many to look
// after needs for one more.
const (
	later = 100
	pace  = 100 * time.Millisecond
)

// creators is how many of them are being created at a time.
const creators = 8

// settle is how long a controller that has nothing more to do gets to give memory back, and how
// often it is looked at meanwhile.
const (
	settle  = 30 * time.Second
	reading = time.Second
)

// BenchmarkSimulated brings virtual machines to Running on simulated nodes.
func BenchmarkSimulated(b *testing.B) {
	count := machines
	if given := os.Getenv("VMIS"); given != "" {
		var err error
		count, err = strconv.Atoi(given)
		must(b, err)
	}
	for b.Loop() {
		w := start(b)
		w.bring(b, 0, 1, 0) // what there is one of: caches, connections, code
		empty, before := w.memory(b), w.metrics(b)
		begun, writes := time.Now(), w.instanceWrites.Load()
		w.bring(b, 1, count, 0)
		took := time.Since(begun)
		after, full := w.metrics(b), w.memory(b)
		fmt.Printf("  %d virtual machines on %d simulated nodes Running in %s\n", count, nodes, took.Round(time.Second))
		goal.Report(b, "machines Running each second", float64(count)/took.Seconds(), "/s", "-")
		goal.Report(b, "controller memory per VMI, live heap", float64(full.heap-empty.heap)/float64(count)/1000, "KB", "<= 30")
		goal.Report(b, "controller memory per VMI, PSS of the process", float64(full.pss-empty.pss)/float64(count)/1000, "KB", "-")
		goal.Report(b, "virt-controller with no VMI (PSS)", float64(empty.pss)/(1<<20), "MiB", "-")
		goal.Report(b, "virt-controller's API writes per VMI", (after.writes-before.writes)/float64(count), "writes", "-")
		goal.Report(b, "writes to the VMI until Running, its creation and virt-handler's included", float64(w.instanceWrites.Load()-writes)/float64(count), "writes", "<= 4")
		reportWaits(b, "all at once", before, after)
		before = w.metrics(b)
		w.bring(b, 1+count, later, pace)
		reportWaits(b, fmt.Sprintf("one each %s, beside them", pace), before, w.metrics(b))
		w.stop()
	}
}

// reportWaits tells how long VMIs waited in virt-controller's queue between two measurements.
func reportWaits(b *testing.B, how string, before, after metrics) {
	b.Helper()
	waits := after.waits.since(before.waits)
	for _, percent := range []float64{50, 95, 99} {
		goal.Report(b, fmt.Sprintf("wait in the queue of VMIs, %s, P%.0f at most", how, percent), waits.percentile(percent)*1000, "ms", "-")
	}
	goal.Report(b, fmt.Sprintf("wait in the queue of VMIs, %s, mean", how), (after.waited-before.waited)/waits.count()*1000, "ms", "-")
}

// bring creates count machines, the first of number first, one each pace, and waits until all run.
func (w *world) bring(b *testing.B, first, count int, pace time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute+time.Duration(count)*200*time.Millisecond)
	defer cancel()
	numbers, failed := make(chan int), make(chan error, creators)
	for range creators {
		go func() {
			for number := range numbers {
				if err := w.client.Create(ctx, instance(number)); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	ticker := time.NewTicker(max(pace, time.Nanosecond))
	defer ticker.Stop()
	for number := first; number < first+count; number++ {
		<-ticker.C
		select {
		case numbers <- number:
		case err := <-failed:
			b.Fatalf("creating a VMI: %v", err)
		}
	}
	close(numbers)
	for range creators {
		must(b, <-failed)
	}
	for w.running.Load() < int64(first+count) {
		select {
		case <-w.progress:
		case err := <-w.broken:
			b.Fatal(err)
		case <-ctx.Done():
			b.Fatalf("%d of %d machines run: %v\n%s", w.running.Load(), first+count, ctx.Err(), w.tail())
		}
	}
}

// usage is what virt-controller has, in bytes.
type usage struct{ heap, pss int64 }

// memory is the least that virt-controller has while it settles: the rest is garbage.
func (w *world) memory(b *testing.B) usage {
	b.Helper()
	least := usage{}
	ticker := time.NewTicker(reading)
	defer ticker.Stop()
	for end := time.Now().Add(settle); time.Now().Before(end); <-ticker.C {
		now := usage{heap: int64(w.metrics(b).heap), pss: pss(b, w.controller.Process.Pid)}
		if least.heap == 0 || now.heap < least.heap {
			least.heap = now.heap
		}
		if least.pss == 0 || now.pss < least.pss {
			least.pss = now.pss
		}
	}
	return least
}

func pss(b *testing.B, pid int) int64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	must(b, err)
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			must(b, err)
			return kib << 10
		}
	}
	b.Fatalf("process %d has no Pss", pid)
	return 0
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
