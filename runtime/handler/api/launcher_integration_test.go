//go:build integration

package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// versionVariable makes this test's own program a launcher that speaks that version of the
// protocol; it stands in for virt-launcher: it speaks as that does, but runs no guest.
const versionVariable = "SLIPWAY_TEST_LAUNCHER_VERSION"

func TestMain(m *testing.M) {
	if text := os.Getenv(versionVariable); text != "" {
		version, err := strconv.Atoi(text)
		if err == nil {
			err = beLauncher(context.Background(), version)
		}
		fmt.Println(err)
		os.Exit(1)
	}
	ctrl.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// beLauncher waits to be in its cgroup, then speaks until the connection is lost.
func beLauncher(ctx context.Context, version int) error {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for {
		socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: names.LauncherSocketName, Net: "unix"})
		if err != nil {
			time.Sleep(10 * time.Millisecond) // only here: the real one watches
			continue
		}
		var conn *wire.Conn
		conn = wire.NewConn(socket, func(ctx context.Context, request wire.Request) (any, error) { return answer(ctx, conn, request) })
		served := make(chan error, 1)
		go func() { served <- conn.Serve(ctx) }()
		hello := wire.Hello{Version: version, Role: wire.RoleLauncher, VMIUID: os.Getenv("VMI_UID")}
		if err := conn.Call(ctx, wire.TypeHello, hello, nil); err != nil {
			return err
		}
		if err := conn.Notify(protocol.TypeState, protocol.State{Phase: protocol.PhaseRunning, AgentConnected: true}); err != nil {
			return err
		}
		fmt.Println("running")
		if err := <-served; err != nil {
			return err
		}
		return errors.New("lost")
	}
}

func answer(_ context.Context, conn *wire.Conn, request wire.Request) (any, error) {
	switch request.Type {
	case protocol.TypePause:
		fmt.Println(request.Type)
		return nil, conn.Notify(protocol.TypeState, protocol.State{Phase: protocol.PhasePaused})
	case protocol.TypeUnpause:
		fmt.Println(request.Type)
		return nil, conn.Notify(protocol.TypeState, protocol.State{Phase: protocol.PhaseRunning, AgentConnected: true})
	case protocol.TypeReset:
		return nil, errors.New("resetting the guest: libvirt says no")
	case protocol.TypeSoftReboot, protocol.TypeUnfreeze:
		fmt.Println(request.Type)
		return nil, nil
	case protocol.TypeFreeze:
		var freeze protocol.Freeze
		if err := request.Decode(&freeze); err != nil {
			return nil, err
		}
		fmt.Println(request.Type, freeze.UnfreezeTimeoutSeconds)
		return nil, nil
	case protocol.TypeGuestInfo:
		return v1.VirtualMachineInstanceGuestAgentInfo{GAVersion: "10.0.2", Hostname: "tiny"}, nil
	case protocol.TypeUsers:
		return v1.VirtualMachineInstanceGuestOSUserList{Items: []v1.VirtualMachineInstanceGuestOSUser{{UserName: "root"}}}, nil
	case protocol.TypeFilesystems:
		return v1.VirtualMachineInstanceFileSystemList{Items: []v1.VirtualMachineInstanceFileSystem{{MountPoint: "/"}}}, nil
	case protocol.TypeScreenshot:
		defer request.Files[0].Close()
		var picture bytes.Buffer
		if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 640, 480))); err != nil {
			return nil, err
		}
		_, err := request.Files[0].Write(picture.Bytes())
		return nil, err
	case protocol.TypeConnect:
		return nil, echo(request)
	}
	return nil, fmt.Errorf("unknown request %s", request.Type)
}

// echo is a device that says its name and repeats what it is told; it is no screen.
func echo(request wire.Request) error {
	var connect protocol.Connect
	if err := request.Decode(&connect); err != nil {
		return err
	}
	stream, err := net.FileConn(request.Files[0])
	_ = request.Files[0].Close()
	if err != nil {
		return err
	}
	fmt.Println(request.Type, connect.Channel)
	go func() {
		_, _ = io.WriteString(stream, string(connect.Channel))
		_, _ = io.Copy(stream, stream)
		_ = stream.Close()
		fmt.Println("over", connect.Channel)
	}()
	return nil
}

// launcher is a process of a pod and what it prints.
type launcher struct {
	command *exec.Cmd
	lines   chan string
}

// startLauncher starts one as uid 107 in the cgroup of pod, in the folder of its socket.
func startLauncher(t *testing.T, root string, pod, vmi types.UID, version int) *launcher {
	t.Helper()
	folder := filepath.Join(root, "pods", string(pod), "volumes", "kubernetes.io~empty-dir", names.VolumeSockets)
	must(t, os.MkdirAll(folder, 0o755))
	must(t, os.Chmod(folder, 0o777))
	own, err := os.Executable()
	must(t, err)
	program, err := os.ReadFile(own)
	must(t, err)
	path := filepath.Join(root, "launcher-"+string(pod))
	must(t, os.WriteFile(path, program, 0o755))
	cgroup := podCgroup(t, pod) // it goes after the process
	l := &launcher{command: exec.Command(path), lines: make(chan string, 100)}
	l.command.Env = append(os.Environ(), versionVariable+"="+strconv.Itoa(version), "VMI_UID="+string(vmi))
	l.command.Dir, l.command.Stderr = folder, os.Stderr
	l.command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: names.QEMUUser, Gid: names.QEMUUser}}
	stdin, err := l.command.StdinPipe()
	must(t, err)
	stdout, err := l.command.StdoutPipe()
	must(t, err)
	must(t, l.command.Start())
	t.Cleanup(l.end)
	must(t, os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(l.command.Process.Pid)), 0o644))
	_, err = io.WriteString(stdin, "go\n")
	must(t, err)
	go func() {
		defer close(l.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			l.lines <- scanner.Text()
		}
	}()
	return l
}

func (l *launcher) end() {
	_ = l.command.Process.Kill()
	_ = l.command.Wait()
}

func (l *launcher) expect(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		select {
		case got := <-l.lines:
			if got != want {
				t.Fatalf("the launcher says %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("the launcher is silent, want %q", want)
		}
	}
}

// expectBoth waits for two lines in either order.
func (l *launcher) expectBoth(t *testing.T, one, other string) {
	t.Helper()
	select {
	case got := <-l.lines:
		if got == other {
			other = one
		} else if got != one {
			t.Fatalf("the launcher says %q, want %q or %q", got, one, other)
		}
	case <-time.After(patience):
		t.Fatalf("the launcher is silent, want %q and %q", one, other)
	}
	l.expect(t, other)
}

// podCgroup makes a cgroup as a kubelet would name it for the pod.
func podCgroup(t *testing.T, pod types.UID) string {
	t.Helper()
	base := "/sys/fs/cgroup"
	if _, err := os.Stat(base + "/pids"); err == nil {
		base += "/pids" // cgroup v1
	}
	path := filepath.Join(base, "slipway-test-"+strconv.Itoa(os.Getpid()), "pod"+string(pod))
	must(t, os.MkdirAll(path, 0o755))
	t.Cleanup(func() {
		_ = os.Remove(path)
		_ = os.Remove(filepath.Dir(path))
	})
	return path
}
