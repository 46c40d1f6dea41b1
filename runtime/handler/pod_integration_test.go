//go:build integration

package handler_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// podIP is the address of every pod: each is alone in its network.
const podIP = "10.199.0.2"

// testPod is a launcher pod as the kubelet would leave it: an object, a volume, a cgroup.
type testPod struct {
	world  *world
	folder string
	cgroup string
}

func (w *world) newPod(t *testing.T, vmi *v1.VirtualMachineInstance, options ...func(*corev1.Pod)) *testPod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "virt-launcher-" + vmi.Name, Namespace: vmi.Namespace,
		Labels:      map[string]string{v1.AppLabel: "virt-launcher", v1.CreatedByLabel: string(vmi.UID)},
		Annotations: map[string]string{v1.DomainAnnotation: vmi.Name},
	}}
	pod.Spec.NodeName = nodeName
	pod.Spec.Containers = []corev1.Container{{Name: "compute", Image: "x"}}
	for _, option := range options {
		option(pod)
	}
	return w.placePod(t, pod)
}

// placePod puts pod on the node.
func (w *world) placePod(t *testing.T, pod *corev1.Pod) *testPod {
	t.Helper()
	must(t, w.client.Create(t.Context(), pod))
	p := &testPod{world: w, folder: filepath.Join(w.root, "pods", string(pod.UID), "volumes/kubernetes.io~empty-dir/sockets")}
	must(t, os.MkdirAll(p.folder, 0o755))
	must(t, os.Chmod(p.folder, 0o777))
	base := "/sys/fs/cgroup"
	if _, err := os.Stat(base + "/pids"); err == nil {
		base += "/pids" // cgroup v1
	}
	p.cgroup = filepath.Join(base, "slipway-test-"+strconv.Itoa(os.Getpid()), "pod"+string(pod.UID))
	must(t, os.MkdirAll(p.cgroup, 0o755))
	t.Cleanup(func() {
		_ = os.Remove(p.cgroup)
		_ = os.Remove(filepath.Dir(p.cgroup))
	})
	return p
}

// file is a disk's image.
func (p *testPod) file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(p.folder, "disk")
	must(t, os.WriteFile(path, []byte("disk content"), 0o444))
	return path
}

// testProcess is a process of a pod and what it prints.
type testProcess struct {
	command *exec.Cmd
	lines   chan string
}

// setUp gives the process what a container has: its own /dev/net/tun, the mounted claim of an
// attachment pod, a folder of the node that is root's, and uid 107.
const setUp = `read go && mount -t tmpfs tmpfs /dev/net && mknod -m 600 /dev/net/tun c 10 200 &&
mount -t tmpfs tmpfs /run && mkdir -p /run/kubevirt-private/vmi-disks/data && touch /run/kubevirt-private/vmi-disks/data/marker &&
mkdir /run/kubevirt-private/vmi-disks/node && mount -t tmpfs -o mode=755 tmpfs /run/kubevirt-private/vmi-disks/node &&
exec setpriv --reuid 107 --regid 107 --clear-groups --no-new-privs --inh-caps=-all "$@"`

// ownDevices gives the process device files of its own, and the block device of POD_BLOCK as /dev/data.
const ownDevices = `mount -t tmpfs -o mode=755 tmpfs /dev && mkdir /dev/net && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 &&
{ [ -z "$POD_BLOCK" ] || mknod -m 600 /dev/data b $POD_BLOCK; } &&
`

// run starts a process in a network of the pod's kind, with an eth0 and a default route.
func (p *testPod) run(t *testing.T, role, argument string) *testProcess {
	t.Helper()
	command := exec.Command("unshare", "--net", "--mount", "sh", "-c", ownDevices+setUp, "sh", p.world.launcher, role, p.folder, argument)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	must(t, err)
	stdout, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	process := &testProcess{command: command, lines: make(chan string, 100)}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	pid := command.Process.Pid
	must(t, os.WriteFile(filepath.Join(p.cgroup, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644))
	makeNetwork(t, pid)
	_, err = io.WriteString(stdin, "go\n")
	must(t, err)
	go func() {
		defer close(process.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			process.lines <- scanner.Text()
		}
	}()
	return process
}

// expect waits for lines. How a connection was lost is a matter of what was on its way, and one that is made anew may be to the
// handler that ends, and be lost too.
func (p *testProcess) expect(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		got := p.line(t, want)
		for want == "greeted" && strings.HasPrefix(got, "lost ") {
			got = p.line(t, want)
		}
		if got != want && (want != "lost" || !strings.HasPrefix(got, "lost ")) {
			t.Fatalf("the launcher says %q, want %q", got, want)
		}
	}
}

// line is the next line.
func (p *testProcess) line(t *testing.T, want string) string {
	t.Helper()
	select {
	case got := <-p.lines:
		return got
	case <-time.After(patience):
		t.Fatalf("the launcher is silent, want %q", want)
		return ""
	}
}

// expectShutdown waits for the request to shut the guest down within what is left of its grace
// period, of whole seconds, and for lines.
func (p *testProcess) expectShutdown(t *testing.T, grace int, lines ...string) {
	t.Helper()
	want := fmt.Sprintf("a shutdown within at most %d", grace)
	got, left := p.line(t, want), -1
	if _, err := fmt.Sscanf(got, "shutdown within %d", &left); err != nil || left < 0 || left > grace {
		t.Fatalf("the launcher says %q, want %s", got, want)
	}
	p.expect(t, lines...)
}

func (p *testProcess) wait(t *testing.T) {
	t.Helper()
	timer := time.AfterFunc(patience, func() { _ = p.command.Process.Kill() })
	defer timer.Stop()
	last := ""
	for last = range p.lines {
	}
	if err := p.command.Wait(); err != nil {
		t.Fatalf("the process ended with %v after it said %q", err, last)
	}
}

// makeNetwork puts a veth pair into the namespace of pid, once it has its own.
func makeNetwork(t *testing.T, pid int) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	path := fmt.Sprintf("/proc/%d/ns/net", pid)
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if now, err := os.Readlink(path); err == nil && now != own {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the process has no network namespace of its own")
		}
	}
	namespace, err := netns.GetFromPath(path)
	must(t, err)
	defer namespace.Close()
	handle, err := netlink.NewHandleAt(namespace)
	must(t, err)
	defer handle.Close()
	must(t, handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 1400}, PeerName: "world"}))
	for _, name := range []string{"eth0", "world"} {
		link, err := handle.LinkByName(name)
		must(t, err)
		must(t, handle.LinkSetUp(link))
	}
	link, err := handle.LinkByName("eth0")
	must(t, err)
	address, err := netlink.ParseAddr(podIP + "/24")
	must(t, err)
	must(t, handle.AddrAdd(link, address))
	must(t, handle.RouteAdd(&netlink.Route{Gw: net.ParseIP("10.199.0.1")}))
}
