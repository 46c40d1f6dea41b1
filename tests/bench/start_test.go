//go:build e2e

package bench

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slipway-vm/slipway/tests/bench/goal"
	"github.com/slipway-vm/slipway/tests/env"
)

// starts is how often a task is started; the median counts.
const starts = 11

// A waiting task's memory is read so often, at this distance; the largest reading counts.
const (
	readings = 6
	settle   = 500 * time.Millisecond
)

// BenchmarkTaskStart measures a task that waits for a VM: from the start of its process to its
// first request to the API, and to the watch by which it waits.
func BenchmarkTaskStart(b *testing.B) {
	c, ns := open(b)
	program := filepath.Join(b.TempDir(), "slipway")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/slipway")
	build.Dir, build.Env = c.Root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		b.Fatalf("building slipway: %v: %s", err, out)
	}
	api, kubeconfig := listen(b, c)
	for b.Loop() {
		var first, watch, bare []float64
		for range starts {
			bare = append(bare, emptyStart(b, program))
			f, w := api.startTask(b, program, kubeconfig, ns)
			first, watch = append(first, f), append(watch, w)
		}
		goal.Report(b, "start of the program that only prints its version", median(bare)*1000, "ms", "-")
		goal.Report(b, "task's start to its first API call", median(first)*1000, "ms", "<= 50")
		goal.Report(b, "task's start to its watch", median(watch)*1000, "ms", "-")
		taskMemory(b, c)
	}
}

// listener stands between a task and the API server, and tells when requests arrive.
type listener struct {
	*httptest.Server
	first, watch chan time.Time
}

// listen starts a listener and returns it with a kubeconfig that names it.
func listen(b *testing.B, c *env.Cluster) (api *listener, kubeconfig string) {
	b.Helper()
	transport, err := rest.TransportFor(c.Config)
	must(b, err)
	target, err := url.Parse(c.Config.Host)
	must(b, err)
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { // tasks are ended in the midst of their watch
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	api = &listener{first: make(chan time.Time, 1), watch: make(chan time.Time, 1)}
	api.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(api.first)
		if r.URL.Query().Get("watch") != "" {
			note(api.watch)
		}
		proxy.ServeHTTP(w, r)
	}))
	api.EnableHTTP2 = true
	api.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	api.StartTLS()
	b.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	config := clientcmdapi.NewConfig()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: api.URL, CertificateAuthorityData: authority}
	config.Contexts["bench"], config.CurrentContext = &clientcmdapi.Context{Cluster: "bench"}, "bench"
	kubeconfig = filepath.Join(b.TempDir(), "kubeconfig")
	must(b, clientcmd.WriteToFile(*config, kubeconfig))
	return api, kubeconfig
}

// note keeps the present time, unless one is kept already.
func note(in chan time.Time) {
	select {
	case in <- time.Now():
	default:
	}
}

// startTask runs a task until it watches, and returns the seconds to its first request and to its watch.
func (l *listener) startTask(b *testing.B, program, kubeconfig, ns string) (first, watch float64) {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), time.Minute)
	defer stop()
	command := exec.CommandContext(ctx, program, "task", "wait-for-vmi-status")
	command.Env = []string{"KUBECONFIG=" + kubeconfig, "TASK_NAMESPACE=" + ns, "PARAM_VMI_NAME=none", "PARAM_SUCCESS_CONDITION=status.phase == Running"}
	begun := time.Now()
	must(b, command.Start())
	var at [2]time.Time
	for i, in := range []chan time.Time{l.first, l.watch} {
		select {
		case at[i] = <-in:
		case <-ctx.Done():
			b.Fatal("waiting a minute for the task's request: " + ctx.Err().Error())
		}
	}
	must(b, command.Process.Kill())
	_ = command.Wait() // it was killed
	for _, in := range []chan time.Time{l.first, l.watch} {
		select { // what a late request noted
		case <-in:
		default:
		}
	}
	return at[0].Sub(begun).Seconds(), at[1].Sub(begun).Seconds()
}

// emptyStart returns the seconds that the program takes to do nothing.
func emptyStart(b *testing.B, program string) float64 {
	b.Helper()
	begun := time.Now()
	must(b, exec.CommandContext(b.Context(), program, "version").Run())
	return time.Since(begun).Seconds()
}

// taskMemory reports the resident memory of a task that waits in a pod, as Tekton runs it.
func taskMemory(b *testing.B, c *env.Cluster) {
	b.Helper()
	run := taskRun("wait-for-vmi-status", map[string]string{"vmiName": "none", "successCondition": "status.phase == Running"})
	must(b, c.Client.Create(b.Context(), run))
	defer remove(b, c, run)
	pod := awaitPod(b, c, run, corev1.PodRunning)
	awaitLine(b, c, pod, "waiting for VirtualMachineInstance")
	ticker := time.NewTicker(settle)
	defer ticker.Stop()
	var most memory
	for range readings {
		<-ticker.C
		processes, err := processesOf(string(pod.UID))
		must(b, err)
		found := slices.IndexFunc(processes, func(p process) bool { return p.command == "slipway" })
		if found < 0 {
			b.Fatalf("the pod %s has no process slipway: %v", pod.Name, processes)
		}
		now, err := memoryOf(processes[found].pid)
		must(b, err)
		if now.resident >= most.resident {
			most = now
		}
	}
	goal.Report(b, "resident memory of a task that waits, in its pod", mib(most.resident), "MiB", "<= 40")
	goal.Report(b, "of it the task's own (anonymous)", mib(most.anonymous), "MiB", "-")
	goal.Report(b, "of it the program's file, shared by all that run it", mib(most.file), "MiB", "-")
	goal.Report(b, "its peak since the start", mib(most.peak), "MiB", "-")
	goal.Report(b, "its proportional share (PSS)", mib(most.proportional), "MiB", "-")
}
