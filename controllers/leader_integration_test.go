//go:build integration

package controllers

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// With envServer in its environment this test's program is a virt-controller, whose identity is in envIdentity.
const (
	envServer   = "SLIPWAY_TEST_CONTROLLER_SERVER"
	envIdentity = "SLIPWAY_TEST_CONTROLLER_IDENTITY"
)

// quickLease lets another process take over within a minute, and no process lose the lead that is not to: on a busy machine each of them
// stands still now and then.
var quickLease = lease{duration: 60 * time.Second, deadline: 50 * time.Second, retry: 3 * time.Second}

// runAlone runs the controllers as `slipway controller` does, and returns the exit code.
func runAlone(server string) int {
	ctrllog.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := Run(ctx, &rest.Config{Host: server}, Options{
		LauncherImage: "launcher", ImporterImage: "slipway", Namespace: installed, Identity: os.Getenv(envIdentity),
		HealthAddress: "0", MetricsAddress: "0", lease: quickLease,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "slipway:", err)
		return 1
	}
	return 0
}

// process is a virt-controller of its own, all of whose writes are seen.
type process struct {
	name    string
	command *exec.Cmd
	ended   chan struct{}
	said    bytes.Buffer // read when it has ended

	mu     sync.Mutex
	writes []string
}

// startProcess starts one that reaches the API server through a proxy, which notes what it writes.
func startProcess(t *testing.T, config *rest.Config, name string) *process {
	t.Helper()
	p := &process{name: name, ended: make(chan struct{})}
	target, _, err := rest.DefaultServerUrlFor(config)
	must(t, err)
	transport, err := rest.TransportFor(config)
	must(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: p.note,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }, // who asked is gone
	})
	self, err := os.Executable()
	must(t, err)
	p.command = exec.Command(self)
	p.command.Env = append(os.Environ(), envServer+"="+proxy.URL, envIdentity+"="+name)
	p.command.Stdout, p.command.Stderr = &p.said, &p.said
	must(t, p.command.Start())
	go func() {
		defer close(p.ended)
		_ = p.command.Wait() // its end is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.command.Process.Kill() // it may have ended
		<-p.ended
		proxy.CloseClientConnections()
		proxy.Close()
		if t.Failed() {
			t.Logf("virt-controller %s ended with %s, wrote\n%s\nand said\n%s", name, p.command.ProcessState, strings.Join(p.wrote(0), "\n"), p.said.String())
		}
	})
	return p
}

// note remembers a write to anything but the lease that the API server accepted.
func (p *process) note(response *http.Response) error {
	request := response.Request
	if request.Method == http.MethodGet || response.StatusCode >= http.StatusMultipleChoices || strings.Contains(request.URL.Path, "/leases") {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes = append(p.writes, request.Method+" "+request.URL.Path)
	return nil
}

// wrote are the writes that were accepted, without the first ones.
func (p *process) wrote(without int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.writes[without:]...)
}

func (p *process) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	must(t, p.command.Process.Signal(signal))
}

// standsStill stops the process, and waits until no thread of it runs any more: on a busy machine some go on for a while.
func (p *process) standsStill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	gomega.NewWithT(t).Eventually(func() ([]string, error) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.command.Process.Pid))
		var running []string
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err != nil {
				return nil, err
			}
			if _, state, _ := bytes.Cut(stat, []byte(") ")); !bytes.HasPrefix(state, []byte("T")) {
				running = append(running, string(stat))
			}
		}
		return running, err
	}, bound, "20ms").Should(gomega.BeEmpty(), "threads of virt-controller %s that run", p.name)
}

// ends waits until the process has ended, and returns its exit code.
func (p *process) ends(t *testing.T) int {
	t.Helper()
	gomega.NewWithT(t).Eventually(p.ended, bound, "50ms").Should(gomega.BeClosed(), "virt-controller %s ends", p.name)
	return p.command.ProcessState.ExitCode()
}

// leads waits until the lease is the process's.
func (c *cluster) leads(t *testing.T, p *process) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() (string, error) {
		lease := &coordinationv1.Lease{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: installed, Name: leaseName}, lease)
		return ptr.Deref(lease.Spec.HolderIdentity, ""), client.IgnoreNotFound(err)
	}, bound, "200ms").Should(gomega.Equal(p.name), "the lease is of virt-controller %s", p.name)
}

// Whichever way the process that leads is lost, another takes over where it was: nothing is made twice and nothing goes.
// One that stood still for longer than its lease ends when it goes on, and writes nothing more.
func TestOneProcessLeadsAtATime(t *testing.T) {
	config := apiserver.Start(t, "hyperconverged/components/crds")
	c := &cluster{config: config}
	c.WithWatch = apiserver.Player(t, config)
	must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installed}}))
	c.makeNode(t, nodeName, alive(), corev1.ConditionTrue)
	c.useEmulation(t, true)
	ns := c.namespace(t)

	first := startProcess(t, config, "first")
	c.leads(t, first)
	second := startProcess(t, config, "second")
	vms := map[client.ObjectKey]*virtv1.VirtualMachineInstance{}
	runs := func(name string) {
		t.Helper()
		key := client.ObjectKey{Namespace: ns, Name: name}
		must(t, c.Create(t.Context(), newVM(ns, name)))
		c.runInstance(t, key)
		c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
		vms[key] = c.vmi(t, key)
	}
	runs("before-1")
	runs("before-2")

	first.standsStill(t)
	must(t, c.Create(t.Context(), newVM(ns, "meanwhile"))) // of which the one that stands still hears when it goes on
	c.leads(t, second)
	key := client.ObjectKey{Namespace: ns, Name: "meanwhile"}
	c.runInstance(t, key)
	c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
	vms[key] = c.vmi(t, key)
	before := len(first.wrote(0))
	first.signal(t, syscall.SIGCONT)
	if code := first.ends(t); code != 1 || !strings.Contains(first.said.String(), "leader election lost") {
		t.Errorf("it ended with %d", code)
	}
	if more := first.wrote(before); len(more) > 0 {
		t.Errorf("it has written although another leads:\n%s", strings.Join(more, "\n"))
	}
	c.leads(t, second)

	third := startProcess(t, config, "third")
	second.signal(t, syscall.SIGKILL)
	second.ends(t)
	must(t, c.Delete(t.Context(), newVM(ns, "before-2"))) // nobody does anything about it yet
	c.leads(t, third)
	runs("after")

	third.signal(t, syscall.SIGTERM)
	if code := third.ends(t); code != 0 {
		t.Errorf("one that is asked to end ends with %d", code)
	}
	deleted := client.ObjectKey{Namespace: ns, Name: "before-2"}
	for key, was := range vms {
		is := c.vmi(t, key)
		if key != deleted && (is.UID != was.UID || is.Status.Phase != virtv1.Running || is.DeletionTimestamp != nil) {
			t.Errorf("%s is %+v, was %+v", key.Name, is, was)
		}
	}
	made, went := map[string]int{}, []string{}
	for _, p := range []*process{first, second, third} {
		for _, write := range p.wrote(0) {
			method, path, _ := strings.Cut(write, " ")
			switch {
			case !strings.Contains(path, "/pods") && !strings.Contains(path, "/virtualmachineinstances"):
			case method == http.MethodPost:
				made[path[strings.LastIndexByte(path, '/')+1:]]++
			case method == http.MethodDelete && !strings.Contains(path, deleted.Name):
				went = append(went, p.name+": "+path)
			}
		}
	}
	if made["pods"] != len(vms) || made["virtualmachineinstances"] != len(vms) {
		t.Errorf("for %d VMs there were made %v", len(vms), made)
	}
	if len(went) > 0 {
		t.Errorf("these were deleted:\n%s", strings.Join(went, "\n"))
	}
}
