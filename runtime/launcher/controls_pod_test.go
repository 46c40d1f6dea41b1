//go:build integration

package launcher_test

import (
	"image/png"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/handler/rfb"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// ask sends a request with an empty reply.
func (p *pod) ask(kind wire.Type, in any, files ...*os.File) {
	p.t.Helper()
	if err := p.conn.Call(p.t.Context(), kind, in, nil, files...); err != nil {
		p.t.Fatal(err)
	}
}

// connect joins a stream with a device of the guest.
func (p *pod) connect(channel protocol.Channel) net.Conn {
	p.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	defer near.Close()
	defer far.Close()
	p.ask(protocol.TypeConnect, protocol.Connect{Channel: channel}, far)
	stream, err := net.FileConn(near)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = stream.Close() })
	if err := stream.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	return stream
}

// hear reads from a stream until it said text.
func (p *pod) hear(stream io.Reader, text string) {
	p.t.Helper()
	heard := ""
	for buffer := make([]byte, 4096); !strings.Contains(heard, text); {
		n, err := stream.Read(buffer)
		heard += string(buffer[:n])
		if err != nil {
			p.t.Fatalf("heard %q, then %v; want %q", heard, err, text)
		}
	}
}

func TestAGuestIsWatchedAndControlled(t *testing.T) {
	p := booted(t)
	t.Run("its console is spoken to, one after the other", func(t *testing.T) {
		for _, name := range []string{"first", "second"} {
			console := p.connect(protocol.ChannelConsole)
			if _, err := io.WriteString(console, "\n"); err != nil {
				t.Fatal(err)
			}
			p.hear(console, "login:")
			if err := console.Close(); err != nil {
				t.Fatalf("closing the %s: %v", name, err)
			}
		}
	})
	t.Run("its screen is seen by two at a time", func(t *testing.T) {
		one, two := p.connect(protocol.ChannelVNC), p.connect(protocol.ChannelVNC)
		p.hear(one, "RFB 003.008\n")
		p.hear(two, "RFB 003.008\n")
	})
	t.Run("its pointer is moved", func(t *testing.T) {
		if err := rfb.MovePointer(p.connect(protocol.ChannelVNC)); err != nil {
			t.Error(err)
		}
	})
	t.Run("a picture of its screen is a PNG", func(t *testing.T) {
		fd, err := unix.MemfdCreate("screenshot", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(fd), "screenshot")
		defer file.Close()
		p.ask(protocol.TypeScreenshot, nil, file)
		picture, err := png.Decode(io.NewSectionReader(file, 0, 1<<30))
		if err != nil {
			t.Fatal(err)
		}
		if size := picture.Bounds().Size(); size.X < 320 || size.Y < 200 {
			t.Errorf("its size is %v", size)
		}
	})
	t.Run("its agent tells of it", p.agentTells)
	t.Run("it is measured", p.measured)
	t.Run("its file systems stand still for a while", p.freezes)
	t.Run("it is paused and goes on", p.pauses)
	t.Run("it restarts", p.restarts)
}

func (p *pod) agentTells(t *testing.T) {
	p.exec("mkfs.ext2 /dev/vdc && mkdir -p /mnt && mount -t ext4 /dev/vdc /mnt")
	var info v1.VirtualMachineInstanceGuestAgentInfo
	if err := p.conn.Call(t.Context(), protocol.TypeGuestInfo, nil, &info); err != nil {
		t.Fatal(err)
	}
	if info.GAVersion == "" || len(info.SupportedCommands) == 0 || info.OS.KernelRelease == "" || info.Hostname == "" || info.FSFreezeStatus != "" {
		t.Errorf("info %+v", info)
	}
	var filesystems v1.VirtualMachineInstanceFileSystemList
	if err := p.conn.Call(t.Context(), protocol.TypeFilesystems, nil, &filesystems); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, one := range filesystems.Items {
		found = found || one.MountPoint == "/mnt" && one.DiskName == "vdc" && one.TotalBytes > 1<<20
	}
	if !found {
		t.Errorf("file systems %+v", filesystems.Items)
	}
	var users v1.VirtualMachineInstanceGuestOSUserList
	if err := p.conn.Call(t.Context(), protocol.TypeUsers, nil, &users); err != nil {
		t.Error(err)
	}
}

func (p *pod) freezes(t *testing.T) {
	frozen := func(want bool) func(protocol.State) bool {
		return func(s protocol.State) bool { return s.Frozen == want }
	}
	p.forget()
	p.ask(protocol.TypeFreeze, protocol.Freeze{UnfreezeTimeoutSeconds: 60})
	p.until("frozen file systems", time.Minute, frozen(true))
	run := protocol.GuestExec{Command: "/bin/true", TimeoutSeconds: 5}
	if err := p.conn.Call(t.Context(), protocol.TypeGuestExec, run, nil); err == nil {
		t.Error("a command runs while the file systems stand still; the agent refuses that")
	}
	p.forget()
	p.ask(protocol.TypeUnfreeze, nil)
	p.until("thawed file systems", time.Minute, frozen(false))
	p.exec("sync; echo written > /mnt/file")

	p.ask(protocol.TypeFreeze, protocol.Freeze{UnfreezeTimeoutSeconds: 2})
	p.forget()
	p.until("file systems that thawed by themselves", time.Minute, frozen(false))
	p.exec("sync; echo written > /mnt/file")
}

func (p *pod) pauses(t *testing.T) {
	p.forget()
	p.ask(protocol.TypePause, nil)
	if state := p.until("a pause", time.Minute, phase(protocol.PhasePaused)); state.Reason != "PausedByUser" {
		t.Errorf("it is paused because of %s", state.Reason)
	}
	p.ask(protocol.TypePause, nil) // again, to no effect
	p.forget()
	p.ask(protocol.TypeUnpause, nil)
	p.until("the end of the pause", time.Minute, phase(protocol.PhaseRunning))
	p.ask(protocol.TypeUnpause, nil)
	p.exec("true")
}

func (p *pod) restarts(t *testing.T) {
	for _, kind := range []wire.Type{protocol.TypeSoftReboot, protocol.TypeReset} {
		p.exec("touch /tmp/before") // in memory
		p.forget()
		p.ask(kind, nil)
		p.until("the agent's loss by "+string(kind), 2*time.Minute, func(s protocol.State) bool { return s.Phase == protocol.PhaseRunning && !s.AgentConnected })
		p.forget()
		p.until("the agent after "+string(kind), 3*time.Minute, agentUp)
		if got := p.exec("ls /tmp"); strings.Contains(got.Stdout, "before") {
			t.Errorf("%s did not restart the guest", kind)
		}
	}
}

func TestAGuestStartsPaused(t *testing.T) {
	p := start(t)
	p.connected()
	vmi := guest()
	paused := v1.StartStrategyPaused
	vmi.Spec.StartStrategy = &paused
	state, err := p.sync(vmi)
	if err != nil || state.Phase != protocol.PhasePaused || state.Reason != "PausedByUser" {
		t.Fatalf("state %+v, %v", state, err)
	}
	p.ask(protocol.TypeUnpause, nil)
	p.until("the start", time.Minute, phase(protocol.PhaseRunning))
	p.until("the agent's report", 3*time.Minute, agentUp)
	for _, seen := range p.states {
		if seen.Phase == protocol.PhaseRunning && seen.AgentConnected {
			break
		}
		if seen.Phase == protocol.PhaseRunning && seen.Since.Before(state.Since) {
			t.Errorf("it ran before it was let go: %+v", p.states)
		}
	}
	p.ask(protocol.TypeDestroy, nil)
	p.exit(time.Minute)
}

func TestAGuestThatDoesNotRunIsNotControlled(t *testing.T) {
	p := start(t)
	p.connected()
	err := p.conn.Call(t.Context(), protocol.TypePause, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("pausing nothing: %v", err)
	}
	err = p.conn.Call(t.Context(), "explode", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "restart the VM") {
		t.Errorf("an unknown request: %v", err)
	}
}
