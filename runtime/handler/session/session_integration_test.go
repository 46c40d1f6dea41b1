//go:build integration

package session

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// enough is how long a wait may take: on a busy machine a process may have no processor for half a minute.
const enough = 5 * time.Minute

// roleVariable makes this test's own program a pod's process instead of a test.
const roleVariable = "SLIPWAY_TEST_ROLE"

var testPod = Pod{UID: "0f5f7a5e-1f4a-4a3e-9d57-3a4a5f2f6a10", Namespace: "default", Name: "virt-launcher-x", VMI: "x", VMIUID: "vmi-uid"}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := beProcess(wire.Role(role)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Geteuid() != 0 {
		fmt.Println("these tests make cgroups and processes of another user: run them as root")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestALauncherIsServedAndSyncedWithItsContainerDisk(t *testing.T) {
	root := newRoot(t)
	server, changes := startServer(t, root)
	session, err := server.Ensure(t.Context(), testPod)
	if err != nil {
		t.Fatal(err)
	}
	// The kubelet makes the volume only now, level by level.
	directory := filepath.Join(append([]string{root}, socketsDirectory(testPod.UID)...)...)
	makeVolume(t, root, directory)

	disk := startProcess(t, directory, wire.RoleContainerDisk, podCgroup(t, testPod.UID), names.QEMUUser)
	disk.expect(t, "greeted")
	disk.expect(t, "done")
	launcher := startProcess(t, directory, wire.RoleLauncher, podCgroup(t, testPod.UID), names.QEMUUser)
	launcher.expect(t, "greeted")
	view := await(t, session, changes, func(v View) bool { return v.Launcher != nil && v.State != nil })
	if view.State.Phase != protocol.PhaseNone || len(view.Disks) != 1 || view.Disks[0] != "rootdisk" {
		t.Fatalf("got %+v with state %+v", view, view.State)
	}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name = "x"
	if err := session.Sync(t.Context(), vmi, Synced{Key: "key", Facts: protocol.Facts{NodeName: "node"}}); err != nil {
		t.Fatal(err)
	}
	launcher.expect(t, "sync x with rootdisk: disk content")
	view = session.View()
	if view.Synced == nil || view.Synced.Key != "key" || view.State.Phase != protocol.PhaseStarting {
		t.Errorf("after sync: got %+v with state %+v", view, view.State)
	}
	session.ReleaseDisks()
	if view := session.View(); len(view.Disks) != 0 {
		t.Errorf("disks are still held: %v", view.Disks)
	}

	t.Run("another handler takes over the socket and the launcher comes back to it", func(t *testing.T) {
		server.Forget(testPod.UID)
		launcher.expect(t, "lost")
		next, changes := startServer(t, root)
		session, err := next.Ensure(t.Context(), testPod)
		if err != nil {
			t.Fatal(err)
		}
		launcher.expectAfter(t, "greeted", "lost") // as often as it found the old socket on its way out
		await(t, session, changes, func(v View) bool { return v.Launcher != nil && v.State != nil })
	})
}

func TestALauncherThatStandsStillIsNoticed(t *testing.T) {
	root := newRoot(t)
	server, changes := startServer(t, root)
	session, err := server.Ensure(t.Context(), testPod)
	if err != nil {
		t.Fatal(err)
	}
	directory := filepath.Join(append([]string{root}, socketsDirectory(testPod.UID)...)...)
	makeVolume(t, root, directory)
	launcher := startProcess(t, directory, wire.RoleLauncher, podCgroup(t, testPod.UID), names.QEMUUser)
	launcher.expect(t, "greeted")
	await(t, session, changes, func(v View) bool { return v.State != nil && v.Heard })
	for range 2 {
		if err := syscall.Kill(launcher.pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		view := await(t, session, changes, func(v View) bool { return v.Silence != nil })
		if view.Silence.Part != protocol.PartLauncher || view.Launcher == nil || time.Since(view.Silence.Since) < patience {
			t.Errorf("after %s: %+v", time.Since(stopped), view.Silence)
		}
		if _, err := session.Stats(t.Context()); !errors.Is(err, ErrSilent) {
			t.Errorf("it is measured: %v", err)
		}
		if err := syscall.Kill(launcher.pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		await(t, session, changes, func(v View) bool { return v.Silence == nil })
	}
}

func TestStrangersAreRefused(t *testing.T) {
	root := newRoot(t)
	server, _ := startServer(t, root)
	session, err := server.Ensure(t.Context(), testPod)
	if err != nil {
		t.Fatal(err)
	}
	directory := filepath.Join(append([]string{root}, socketsDirectory(testPod.UID)...)...)
	makeVolume(t, root, directory)
	for name, c := range map[string]struct {
		cgroup string
		uid    uint32
	}{
		"a process of another pod":        {podCgroup(t, "11111111-1f4a-4a3e-9d57-3a4a5f2f6a10"), names.QEMUUser},
		"a process of the pod as another": {podCgroup(t, testPod.UID), 1000},
	} {
		t.Run(name, func(t *testing.T) {
			startProcess(t, directory, wire.RoleLauncher, c.cgroup, c.uid).expect(t, "lost")
			if view := session.View(); view.Launcher != nil {
				t.Error("it was taken for the launcher")
			}
		})
	}
}

func TestNoLinkOfAPodIsFollowed(t *testing.T) {
	t.Run("in the place of the socket", func(t *testing.T) {
		root := newRoot(t)
		victim := filepath.Join(root, "victim")
		if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		directory := filepath.Join(append([]string{root}, socketsDirectory(testPod.UID)...)...)
		makeVolume(t, root, directory)
		for _, name := range []string{names.LauncherSocketName, draftName} {
			if err := os.Symlink(victim, filepath.Join(directory, name)); err != nil {
				t.Fatal(err)
			}
		}
		server, _ := startServer(t, root)
		if _, err := server.Ensure(t.Context(), testPod); err != nil {
			t.Fatal(err)
		}
		startProcess(t, directory, wire.RoleLauncher, podCgroup(t, testPod.UID), names.QEMUUser).expect(t, "greeted")
		info, err := os.Lstat(victim)
		if err != nil || info.Mode().Perm() != 0o600 || !info.Mode().IsRegular() {
			t.Errorf("the link's target is now %v, %v", info, err)
		}
	})
	t.Run("in the place of the volume", func(t *testing.T) {
		root := newRoot(t)
		directory := filepath.Join(append([]string{root}, socketsDirectory(testPod.UID)...)...)
		if err := os.MkdirAll(filepath.Dir(directory), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(t.TempDir(), directory); err != nil {
			t.Fatal(err)
		}
		server, changes := startServer(t, root)
		session, err := server.Ensure(t.Context(), testPod)
		if err != nil {
			t.Fatal(err)
		}
		await(t, session, changes, func(v View) bool { return v.Failure != nil })
	})
}

// newRoot is a kubelet's root that other users can reach.
func newRoot(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func makeVolume(t *testing.T, root, directory string) {
	t.Helper()
	relative, err := filepath.Rel(root, directory)
	if err != nil {
		t.Fatal(err)
	}
	path := root
	for segment := range strings.SplitSeq(relative, "/") {
		path = filepath.Join(path, segment)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(directory, 0o777); err != nil {
		t.Fatal(err)
	}
}

func startServer(t *testing.T, root string) (*Server, chan struct{}) {
	t.Helper()
	changes := make(chan struct{}, 100)
	server := NewServer(root, func(types.NamespacedName) { changes <- struct{}{} })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return server, changes
}

func await(t *testing.T, session *Session, changes chan struct{}, met func(View) bool) View {
	t.Helper()
	deadline := time.After(enough)
	for {
		if view := session.View(); met(view) {
			return view
		}
		select {
		case <-changes:
		case <-deadline:
			t.Fatalf("in vain: %+v", session.View())
		}
	}
}

// podCgroup makes a cgroup as a kubelet would name it for the pod.
func podCgroup(t *testing.T, uid types.UID) string {
	t.Helper()
	base := "/sys/fs/cgroup"
	if _, err := os.Stat(base + "/pids"); err == nil {
		base += "/pids" // cgroup v1
	}
	path := filepath.Join(base, "slipway-test-"+strconv.Itoa(os.Getpid()), "pod"+string(uid))
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatalf("making a cgroup: %v", err)
	}
	t.Cleanup(func() {
		_ = os.Remove(path)
		_ = os.Remove(filepath.Dir(path))
	})
	return path
}

// podProcess is a process of a pod, and what it prints.
type podProcess struct {
	pid   int
	lines chan string
}

func startProcess(t *testing.T, directory string, role wire.Role, cgroup string, uid uint32) *podProcess {
	t.Helper()
	command := exec.Command(program(t))
	command.Env = append(os.Environ(), roleVariable+"="+string(role))
	command.Dir = directory
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(command.Process.Pid)), 0o644); err != nil {
		t.Fatalf("moving a process into its cgroup: %v", err)
	}
	if _, err := io.WriteString(stdin, "go\n"); err != nil {
		t.Fatal(err)
	}
	p := &podProcess{pid: command.Process.Pid, lines: make(chan string, 100)}
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	return p
}

func (p *podProcess) expect(t *testing.T, want string) {
	t.Helper()
	p.expectAfter(t, want, "")
}

// expectAfter waits for the line wanted, before which skipped may come any number of times.
func (p *podProcess) expectAfter(t *testing.T, want, skipped string) {
	t.Helper()
	bound := time.After(enough)
	for {
		select {
		case got := <-p.lines:
			if got == want {
				return
			}
			if got != skipped || skipped == "" {
				t.Fatalf("the process says %q, want %q", got, want)
			}
		case <-bound:
			t.Fatalf("the process is silent, want %q", want)
		}
	}
}

// program copies this test to where another user can run it.
func program(t *testing.T) string {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(newRoot(t), "process")
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// beProcess is what runs in the pod: it waits to be in its cgroup, then connects until
// it is told to end, and prints what happens.
func beProcess(role wire.Role) error {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for {
		socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: names.LauncherSocketName, Net: "unix"})
		if err != nil {
			time.Sleep(10 * time.Millisecond) // only here: the real ones watch
			continue
		}
		if done, err := converseAs(role, socket); done || err != nil {
			return err
		}
		fmt.Println("lost")
	}
}

func converseAs(role wire.Role, socket *net.UnixConn) (bool, error) {
	conn := wire.NewConn(socket, answerSync)
	served := make(chan error, 1)
	go func() { served <- conn.Serve(context.Background()) }()
	defer conn.Close()
	hello := wire.Hello{Version: wire.Version, Role: role, VMIUID: string(testPod.VMIUID)}
	var files []*os.File
	if role == wire.RoleContainerDisk {
		hello.Volume = "rootdisk"
		file, err := openDisk()
		if err != nil {
			return false, err
		}
		files = append(files, file)
	}
	var reply wire.Hello
	if err := conn.Call(context.Background(), wire.TypeHello, hello, &reply, files...); err != nil {
		return false, nil // refused
	}
	fmt.Println("greeted")
	if role == wire.RoleContainerDisk {
		fmt.Println("done")
		return true, nil
	}
	if err := conn.Notify(protocol.TypeState, protocol.State{}); err == nil {
		<-served //nolint:errcheck // however it ends: something may have been on its way
	}
	return false, nil
}

func openDisk() (*os.File, error) {
	path := filepath.Join(os.TempDir(), "disk-"+strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(path, []byte("disk content"), 0o400); err != nil {
		return nil, err
	}
	defer os.Remove(path) // the image's mount goes away, too
	return os.Open(path)
}

func answerSync(_ context.Context, request wire.Request) (any, error) {
	var sync protocol.Sync
	if err := json.Unmarshal(request.Payload, &sync); err != nil || request.Type != protocol.TypeSync {
		return nil, fmt.Errorf("unexpected %s: %w", request.Type, err)
	}
	for i, file := range request.Files {
		content, err := io.ReadAll(io.NewSectionReader(file, 0, 100))
		if err != nil {
			return nil, err
		}
		fmt.Printf("sync %s with %s: %s\n", sync.VMI.Name, sync.Facts.ContainerDisks[i], content)
	}
	return protocol.State{Phase: protocol.PhaseStarting}, nil
}
