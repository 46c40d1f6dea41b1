//go:build e2e

package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/bench/goal"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

const bound = 5 * time.Minute

// world is the cluster with Slipway on it, opened once.
var world = sync.OnceValues(func() (*env.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	c, err := env.Open(ctx)
	if err != nil {
		return nil, err
	}
	return c, c.Install(ctx, os.Stderr)
})

// open returns the cluster and a namespace for the benchmark.
func open(b *testing.B) (*env.Cluster, string) {
	b.Helper()
	c, err := world()
	if err != nil {
		b.Fatal(err)
	}
	if c.Existing {
		b.Skip("the processes and the network of an existing cluster are out of reach")
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "slipway-bench-"}}
	must(b, c.Client.Create(b.Context(), ns))
	b.Cleanup(func() { _ = c.Client.Delete(context.Background(), ns) })
	return c, ns.Name
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkControlPlane measures pods and memory of Slipway's own components.
func BenchmarkControlPlane(b *testing.B) {
	c, _ := open(b)
	for b.Loop() {
		var pods corev1.PodList
		must(b, c.Client.List(b.Context(), &pods, client.InNamespace(names.InstallNamespace)))
		total := int64(0)
		for _, pod := range pods.Items {
			processes, err := processesOf(string(pod.UID))
			must(b, err)
			sum := int64(0)
			for _, p := range processes {
				sum += p.pss
			}
			fmt.Printf("    %-40s %6.1f MiB\n", pod.Name, mib(sum))
			total += sum
		}
		goal.Report(b, "pods of the control plane", float64(len(pods.Items)), "pods", "<= 7")
		goal.Report(b, "memory of the control plane (PSS)", mib(total), "MiB", "<= 300")
	}
}

// BenchmarkIdleWrites counts what the service accounts of an idle installation write to the API.
func BenchmarkIdleWrites(b *testing.B) {
	c, _ := open(b)
	const minutes = 3
	for b.Loop() {
		log, err := openAudit(c.Local.Log)
		must(b, err)
		before, err := writes(b.Context(), c, "")
		must(b, err)
		timer := time.NewTimer(minutes * time.Minute)
		<-timer.C
		after, err := writes(b.Context(), c, "")
		must(b, err)
		ours, err := log.writes(names.InstallNamespace)
		must(b, err)
		must(b, log.close())
		fmt.Printf("    %.1f writes a minute in the whole cluster; ours in %d minutes:\n", (after-before)/minutes, minutes)
		goal.Report(b, "API writes of an idle installation", float64(printCounts(os.Stdout, ours))/minutes, "/min", "<= 20")
	}
}

// BenchmarkVM measures one VM: its start against a plain pod's, its writes, its memory, its end. Times and writes are
// the medians of some turns, for others write beside it now and then; memory is that of the first.
func BenchmarkVM(b *testing.B) {
	c, ns := open(b)
	images, err := c.Images()
	must(b, err)
	for b.Loop() {
		var plain, running, ended, all, own []float64
		for n := range turns {
			plain = append(plain, startPlainPod(b, c, ns, images["slipway-launcher"].Ref).Seconds())
			before := countWrites(b, c)
			vmi := instance(ns, fmt.Sprintf("bench-%d", n))
			running = append(running, startInstance(b, c, vmi).Seconds())
			after := countWrites(b, c)
			all, own = append(all, after.all-before.all), append(own, after.instances-before.instances)
			if n == 0 {
				launcherMemory(b, c, vmi, "memory of a node's first VM beyond guest RAM and QEMU (PSS)", "<= 45")
			}
			begun := time.Now()
			must(b, c.Client.Delete(b.Context(), vmi, &client.DeleteOptions{}))
			must(b, c.Gone(b.Context(), io.Discard, vmi, bound))
			ended = append(ended, time.Since(begun).Seconds())
		}
		fmt.Printf("    writes in each turn: %v, to the VMI %v\n", all, own)
		goal.Report(b, "API writes until Running, everybody's but leases, median", median(all), "writes", "<= 20")
		goal.Report(b, "writes to the VMI until Running, median", median(own), "writes", "<= 4")
		goal.Report(b, "plain pod of the same image, create to Ready, median", median(plain), "s", goal.None)
		goal.Report(b, "VMI create to Running beyond that pod, median", median(running)-median(plain), "s", "<= 0.8")
		goal.Report(b, "delete of a running VM without a guest OS, median", median(ended), "s", "<= 1")
	}
}

// startPlainPod returns how long a pod that only sleeps takes from its creation to Ready.
func startPlainPod(b *testing.B, c *env.Cluster, namespace, image string) time.Duration {
	b.Helper()
	pod := plainPod(namespace, image)
	begun := time.Now()
	must(b, c.Client.Create(b.Context(), pod))
	must(b, c.Await(b.Context(), io.Discard, pod, bound, func(obj client.Object) (string, bool, error) {
		for _, cond := range obj.(*corev1.Pod).Status.Conditions {
			if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
				return "", true, nil
			}
		}
		return "", false, nil
	}))
	took := time.Since(begun)
	must(b, c.Client.Delete(b.Context(), pod, &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	must(b, c.Gone(b.Context(), io.Discard, pod, bound))
	return took
}

// startInstance returns how long a VMI takes from its creation to Running.
func startInstance(b *testing.B, c *env.Cluster, vmi *virtv1.VirtualMachineInstance) time.Duration {
	b.Helper()
	begun := time.Now()
	must(b, c.Client.Create(b.Context(), vmi))
	must(b, c.Await(b.Context(), io.Discard, vmi, bound, func(obj client.Object) (string, bool, error) {
		phase := obj.(*virtv1.VirtualMachineInstance).Status.Phase
		return string(phase), phase == virtv1.Running, nil
	}))
	return time.Since(begun)
}

// written is what the API server has taken so far.
type written struct {
	// all leaves leases out: they are renewed all the time, by everybody.
	all, instances float64
}

func countWrites(b *testing.B, c *env.Cluster) written {
	b.Helper()
	count := func(resource string) float64 {
		n, err := writes(b.Context(), c, resource)
		must(b, err)
		return n
	}
	return written{all: count("") - count("leases"), instances: count("virtualmachineinstances")}
}

// launcherMemory reports the memory of the launcher pod of a VMI beside QEMU.
func launcherMemory(b *testing.B, c *env.Cluster, vmi *virtv1.VirtualMachineInstance, what, limit string) {
	b.Helper()
	var pods corev1.PodList
	must(b, c.Client.List(b.Context(), &pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{virtv1.CreatedByLabel: string(vmi.UID)}))
	if len(pods.Items) != 1 {
		b.Fatalf("%s has %d launcher pods", vmi.Name, len(pods.Items))
	}
	processes, err := processesOf(string(pods.Items[0].UID))
	must(b, err)
	sum := int64(0)
	for _, p := range processes {
		fmt.Printf("    %-40s %6.1f MiB\n", p.command, mib(p.pss))
		if !strings.HasPrefix(p.command, "qemu-system") && p.command != "pause" {
			sum += p.pss
		}
	}
	if sum == 0 {
		b.Fatalf("no process of the launcher pod of %s was found", vmi.Name)
	}
	goal.Report(b, what, mib(sum), "MiB", limit)
}

// BenchmarkImport measures imports of one disk in several formats by pods, beside a plain download and
// a plain sparse write on the same machine. The goal, 1.2 times the slowest step that an import cannot
// do without, is of the import alone: the benchmark in the folder importer holds it against that.
func BenchmarkImport(b *testing.B) {
	c, ns := open(b)
	dir := b.TempDir()
	makeDisks(b, dir)
	serving, stop := context.WithCancel(context.Background())
	b.Cleanup(stop)
	root, err := c.Serve(serving, http.FileServer(http.Dir(dir)))
	must(b, err)
	for b.Loop() {
		begun := time.Now()
		must(b, exec.CommandContext(b.Context(), "dd", "if="+filepath.Join(dir, "disk.raw"), "of="+filepath.Join(c.Local.PoolPath, "bench.raw"), "bs=1M", "conv=sparse,fsync").Run())
		goal.Report(b, "plain sparse write of the raw disk", time.Since(begun).Seconds(), "s", "-")
		must(b, os.Remove(filepath.Join(c.Local.PoolPath, "bench.raw")))
		for i, name := range []string{"disk.qcow2", "disk.compressed.qcow2", "disk.raw", "disk.raw.gz", "disk.raw.xz", "disk.raw.zst"} {
			begun := time.Now()
			response, err := http.Get(root + "/" + name) //nolint:noctx // a plain download
			must(b, err)
			size, err := io.Copy(io.Discard, response.Body)
			must(b, err)
			must(b, response.Body.Close())
			download := time.Since(begun)
			dv := fixture.DataVolume(ns, fmt.Sprintf("import-%d", i), "5Gi", fixture.HTTP(root+"/"+name))
			begun = time.Now()
			must(b, c.Client.Create(b.Context(), dv))
			must(b, c.Await(b.Context(), io.Discard, dv, bound, func(obj client.Object) (string, bool, error) {
				phase := obj.(*cdiv1.DataVolume).Status.Phase
				return string(phase), phase == cdiv1.Succeeded, nil
			}))
			fmt.Printf("    %s: %.0f MiB on the wire, plain download %.2f s\n", name, mib(size), download.Seconds())
			goal.Report(b, "import of "+name+", create to Succeeded", time.Since(begun).Seconds(), "s", goal.None)
			must(b, c.Client.Delete(b.Context(), dv))
		}
	}
}
