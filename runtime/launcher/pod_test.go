//go:build integration

// These tests run virt-launcher as in its pod, with libvirt, QEMU and a real guest,
// and play virt-handler. They need root; they build the launcher's image and the tiny
// guest, or take them from their caches. All processes and mounts of a pod are in
// namespaces of its own and end with the test, however that ends.
//
// go test -tags integration ./runtime/launcher -v
package launcher_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/overhead"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

const uid = "11111111-2222-3333-4444-555555555555"

// patience is how long these tests wait for what is to come: on a busy machine a process may have no processor for half a minute, and
// a guest, which is emulated, may take minutes to boot.
const patience = 8 * time.Minute

// pod is a launcher under test; the test is its handler.
type pod struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
	// out is the launcher's standard output, the guest's console; log its standard error.
	out, log lockedBuffer
	exited   chan struct{}

	mu     sync.Mutex
	states []protocol.State
	fresh  chan struct{}
	conns  chan *wire.Conn
	conn   *wire.Conn
	listen net.Listener
}

type lockedBuffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// product runs a program of this checkout that builds something, and returns the path
// that it prints last.
func product(args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"run"}, args...)...)
	cmd.Dir = "../.."
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go run %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	lines := strings.Fields(string(out))
	if len(lines) == 0 {
		return "", fmt.Errorf("go run %s: it printed no path\n%s", strings.Join(args, " "), said.String())
	}
	return lines[len(lines)-1], nil
}

var (
	builtRoot  = sync.OnceValues(func() (string, error) { return product("./hack/images", "unpack", "slipway-launcher") })
	builtGuest = sync.OnceValues(func() (string, error) { return product("./tests/guest", "build", "tiny") })
)

// launcherRoot is the root file system of the launcher's image.
func launcherRoot(t *testing.T) string {
	t.Helper()
	root, err := builtRoot()
	if err != nil {
		t.Fatalf("building the launcher's image: %v", err)
	}
	return root
}

// openGuest opens the tiny guest's disk.
func openGuest(t *testing.T) *os.File {
	t.Helper()
	path, err := builtGuest()
	if err != nil {
		t.Fatalf("building the tiny guest: %v", err)
	}
	disk, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

// start starts a launcher in a pod of its own.
func start(t *testing.T, args ...string) *pod {
	t.Helper()
	root := launcherRoot(t)
	_ = openGuest(t).Close() // built before anything is timed
	dir := t.TempDir()
	for _, parent := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := &pod{t: t, dir: dir, exited: make(chan struct{}), fresh: make(chan struct{}), conns: make(chan *wire.Conn, 8)}
	for _, name := range []string{"libvirt", "private", "sockets"} {
		path := filepath.Join(p.dir, name)
		if err := errors.Join(os.Mkdir(path, 0o770), os.Chown(path, 107, 107)); err != nil {
			t.Fatal(err)
		}
	}
	last := filepath.Join(p.dir, "termination-log")
	if err := errors.Join(os.WriteFile(last, nil, 0o666), os.Chmod(last, 0o666)); err != nil {
		t.Fatal(err)
	}
	p.serve()
	script, err := filepath.Abs("testdata/pod.sh")
	if err != nil {
		t.Fatal(err)
	}
	p.run(append([]string{"-p", "--fork", "--kill-child", "unshare", "-m", "-p", "-n", "-i", "--fork", "bash", script, root, p.dir,
		"/usr/bin/virt-launcher", "--name", "tiny", "--namespace", "default", "--uid", uid}, args...))
	t.Cleanup(func() {
		p.end()
		if t.Failed() || os.Getenv("LAUNCHER_LOG") != "" {
			t.Logf("launcher's log:\n%s\nconsole:\n%s", p.log.String(), p.out.String())
		}
	})
	return p
}

// end kills the launcher with all that it has started.
func (p *pod) end() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// run starts unshare. It dies with this process, even when that is killed: the kernel
// looks at the thread that started it, which therefore waits for it. With it dies the
// outer of two namespaces of processes, with all in it; the launcher is the first
// process of the inner one, for it changes its user, which unties it from its parent.
func (p *pod) run(args []string) {
	p.t.Helper()
	p.cmd = exec.Command("unshare", args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatal(err)
	}
}

// serve listens as a handler does: the socket appears whole, by a rename.
func (p *pod) serve() {
	p.t.Helper()
	path := filepath.Join(p.dir, "sockets", "handler.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + ".new", Net: "unix"})
	if err != nil {
		p.t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(path+".new", 0o666), os.Rename(path+".new", path)); err != nil {
		p.t.Fatal(err)
	}
	p.listen = listener
	go func() {
		for {
			socket, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			// A launcher that was greeted too late comes again: it is connected once it has told its state.
			var conn *wire.Conn
			var connected sync.Once
			conn = wire.NewConn(socket, func(ctx context.Context, request wire.Request) (any, error) {
				answer, err := p.handle(ctx, request)
				if request.Type == protocol.TypeState {
					connected.Do(func() { p.conns <- conn })
				}
				return answer, err
			})
			go func() { _ = conn.Serve(context.Background()) }()
		}
	}()
}

// away stops the handler: the launcher loses its connection and finds no socket.
func (p *pod) away() {
	_ = p.listen.Close()
	_ = os.Remove(filepath.Join(p.dir, "sockets", "handler.sock"))
	_ = p.conn.Close()
}

func (p *pod) handle(_ context.Context, request wire.Request) (any, error) {
	switch request.Type {
	case wire.TypeHello:
		return wire.Hello{Version: wire.Version}, nil
	case protocol.TypeState:
		var state protocol.State
		if err := request.Decode(&state); err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.states = append(p.states, state)
		close(p.fresh)
		p.fresh = make(chan struct{})
		return nil, nil
	}
	return nil, fmt.Errorf("unexpected %s", request.Type)
}

// connected waits for the launcher's connection.
func (p *pod) connected() {
	p.t.Helper()
	select {
	case p.conn = <-p.conns:
	case <-p.exited:
		p.t.Fatal("the launcher ended before it connected")
	case <-time.After(patience):
		p.t.Fatal("the launcher did not connect")
	}
}

// until waits for a state, from the first on.
func (p *pod) until(what string, want func(protocol.State) bool) protocol.State {
	p.t.Helper()
	return p.after(what, func(protocol.State) bool { return true }, want)
}

// after waits for a state that is not earlier than one which comes first. It asks want about each second again, which may look at
// other things, too.
func (p *pod) after(what string, first, want func(protocol.State) bool) protocol.State {
	p.t.Helper()
	deadline, exited := time.After(patience), p.exited
	for ended := false; ; {
		p.mu.Lock()
		if from := slices.IndexFunc(p.states, first); from >= 0 {
			if at := slices.IndexFunc(p.states[from:], want); at >= 0 {
				defer p.mu.Unlock()
				return p.states[from+at]
			}
		}
		fresh := p.fresh
		p.mu.Unlock()
		why := "within " + patience.String()
		if ended {
			why = "before the launcher ended"
		} else {
			select {
			case <-fresh:
				continue
			case <-time.After(time.Second):
				continue
			case <-exited: // it has told all by then
				ended = true
				continue
			case <-deadline:
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Fatalf("no state with %s %s; the guest's console ends with %q; states: %+v", what, why, p.consoleEnd(), p.states)
	}
}

// consoleEnd is the last that the guest wrote to its console.
func (p *pod) consoleEnd() string {
	console := p.out.String()
	return console[max(0, len(console)-200):]
}

func (p *pod) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states = nil
}

// exit waits for the launcher's end and returns its exit code.
func (p *pod) exit() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("the launcher did not end within %s", patience)
		return 0
	}
}

func (p *pod) sync(vmi *v1.VirtualMachineInstance) (protocol.State, error) {
	p.t.Helper()
	guest := openGuest(p.t)
	defer guest.Close()
	var state protocol.State
	message := protocol.Sync{VMI: vmi, Facts: protocol.Facts{
		NodeName: "here", AllowEmulation: true, ContainerDisks: []string{"root"},
		Interfaces: links(),
	}}
	err := p.conn.Call(p.t.Context(), protocol.TypeSync, message, &state, guest)
	return state, err
}

// links are the interfaces of a pod of these tests.
func links() []protocol.Interface {
	return []protocol.Interface{{
		Name: "default", Tap: "tap0", MAC: "02:00:00:00:00:01", MTU: 1450, Queues: 1,
		DHCP: &protocol.Lease{Address: "10.0.2.2/24", Gateway: "10.0.2.1", DNS: []string{"10.96.0.10"}, Search: []string{"cluster.local"}, Hostname: "tiny"},
	}}
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// asked numbers the commands that guests are asked to run.
var asked atomic.Int64

// once is a script that runs command once, however often it is run itself, and says each time what that said.
const once = `d=/run/asked-%d
if mkdir $d 2>/dev/null; then
	(
%s
	) >$d/out 2>$d/err
	echo $? >$d/ended
	mv $d/ended $d/code
fi
until [ -e $d/code ]; do sleep 0.2; done
cat $d/err >&2
cat $d/out
exit $(cat $d/code)`

// exec runs a command in the guest. A guest that stands still, and so gives no answer, is asked again.
func (p *pod) exec(command string) (result protocol.GuestExecResult) {
	p.t.Helper()
	script := fmt.Sprintf(once, asked.Add(1), command)
	p.retry(fmt.Sprintf("running %q in the guest", command), func() (err error) {
		result, err = p.askGuest(script)
		return err
	})
	return result
}

// askGuest asks the guest once to run a command.
func (p *pod) askGuest(command string) (result protocol.GuestExecResult, err error) {
	run := protocol.GuestExec{Command: "/bin/sh", Args: []string{"-c", command}, TimeoutSeconds: 120}
	err = p.conn.Call(p.t.Context(), protocol.TypeGuestExec, run, &result)
	return result, err
}

// execLast runs a command after which the guest may be gone, or its agent, before the answer is here: what becomes of it is told by
// the machine's state.
func (p *pod) execLast(command string) {
	p.t.Helper()
	if result, err := p.askGuest(command); err != nil {
		p.t.Logf("%q is not answered any more: %v", command, err)
	} else if result.ExitCode != 0 {
		p.t.Fatalf("%q ended with %+v", command, result)
	}
}

// boot names the guest's run since it was started last.
const boot = "cat /proc/sys/kernel/random/boot_id"

// restarted waits until a guest whose run was before has been started anew, and its agent tells of it.
func (p *pod) restarted(before string) {
	p.t.Helper()
	p.retry("the guest starts anew", func() error {
		now, err := p.askGuest(boot)
		if err == nil && now.Stdout == before {
			err = errors.New("it goes on as it was")
		}
		return err
	})
	p.tells("the agent's report after the start", agentUp)
}

// tells asks for the machine's state until it is as wanted.
func (p *pod) tells(what string, want func(protocol.State) bool) (state protocol.State) {
	p.t.Helper()
	p.retry(what, func() error {
		state = protocol.State{}
		err := p.conn.Call(p.t.Context(), protocol.TypeSync, protocol.Sync{VMI: guest(), Facts: protocol.Facts{Interfaces: links()}}, &state)
		if err == nil && !want(state) {
			err = fmt.Errorf("the state is %+v", state)
		}
		return err
	})
	return state
}

// guest is a VMI with all kinds of volumes that need no cluster.
func guest() *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name, vmi.UID = "default", "tiny", uid
	memory := resource.MustParse("128Mi")
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: &memory}
	virtio := v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "root", DiskDevice: virtio}, {Name: "seed", DiskDevice: virtio}, {Name: "scratch", DiskDevice: virtio},
	}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}}}
	vmi.Spec.Domain.Devices.Rng = &v1.Rng{}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "root", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "tiny"}}},
		{Name: "seed", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config\nruncmd:\n- echo seeded > /tmp/seed\n"}}},
		{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}}},
	}
	return vmi
}

func agentUp(state protocol.State) bool {
	return state.AgentConnected && state.GuestOS != nil && len(state.Interfaces) > 0 && len(state.Interfaces[0].IPs) > 0
}

// booted starts a guest and waits for its agent.
func booted(t *testing.T, args ...string) *pod {
	t.Helper()
	p := start(t, args...)
	p.connected()
	before := time.Now()
	state, err := p.sync(guest())
	if err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("state %+v, %v", state, err)
	}
	t.Logf("sync to Running: %s; %+v", time.Since(before), state)
	state = p.until("the agent's report", agentUp)
	t.Logf("agent's report after %s: %s, %+v", time.Since(before), state.GuestOS.PrettyName, state.Interfaces)
	return p
}

func TestAGuestBootsAnswersAndShutsDown(t *testing.T) {
	p := booted(t)
	if got := p.exec("echo hello; echo oops >&2; exit 3"); got.Stdout != "hello\n" || got.Stderr != "oops\n" || got.ExitCode != 3 {
		t.Errorf("exec said %+v", got)
	}
	p.exec("until [ -e /run/seed-done ]; do sleep 0.2; done")
	p.retry("the guest's facts", func() error { // the agent answers before the guest has set all that it is told
		facts := p.exec("hostname; cat /tmp/seed; ip -4 addr show eth0; cat /etc/resolv.conf; ls /dev/vd*; cat /sys/class/net/eth0/mtu; cat /sys/block/vdc/size").Stdout
		for _, want := range []string{"seeded", "10.0.2.2/24", "nameserver 10.96.0.10", "/dev/vdc", "1450", "131072"} {
			if !strings.Contains(facts, want) {
				return fmt.Errorf("the guest lacks %q:\n%s", want, facts)
			}
		}
		return nil
	})
	p.retry("the console's login prompt", func() error {
		if said := p.out.String(); !strings.Contains(said, "tiny login:") {
			return fmt.Errorf("the console has none:\n%s", said)
		}
		return nil
	})
	p.fits(overhead.Machine{Guest: 128 << 20, VCPUs: 1, Graphics: true})
	before := time.Now()
	if err := p.conn.Call(t.Context(), protocol.TypeShutdown, protocol.Shutdown{GracePeriodSeconds: 600}, nil); err != nil {
		t.Fatal(err)
	}
	state := p.until("phase Shutdown", func(s protocol.State) bool { return s.Phase == protocol.PhaseShutdown })
	if code := p.exit(); code != 0 || state.Reason != "GuestShutdown" {
		t.Errorf("exit code %d, state %+v", code, state)
	}
	t.Logf("shut down in %s", time.Since(before))
}
