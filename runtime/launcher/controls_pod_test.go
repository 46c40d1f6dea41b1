//go:build integration

package launcher_test

import (
	"fmt"
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
	if err := stream.SetReadDeadline(time.Now().Add(patience)); err != nil {
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
	// A guest that stands still for a while leaves a question without an answer.
	p.retry("what the agent tells", func() error {
		var info v1.VirtualMachineInstanceGuestAgentInfo
		err := p.conn.Call(t.Context(), protocol.TypeGuestInfo, nil, &info)
		if err == nil && (info.GAVersion == "" || len(info.SupportedCommands) == 0 || info.OS.KernelRelease == "" || info.Hostname == "" || info.FSFreezeStatus != "") {
			err = fmt.Errorf("it tells %+v", info)
		}
		return err
	})
	p.retry("the file systems", func() error {
		var filesystems v1.VirtualMachineInstanceFileSystemList
		if err := p.conn.Call(t.Context(), protocol.TypeFilesystems, nil, &filesystems); err != nil {
			return err
		}
		for _, one := range filesystems.Items {
			if one.MountPoint == "/mnt" && one.DiskName == "vdc" && one.TotalBytes > 1<<20 {
				return nil
			}
		}
		return fmt.Errorf("they are %+v", filesystems.Items)
	})
	p.retry("the users", func() error {
		return p.conn.Call(t.Context(), protocol.TypeUsers, nil, &v1.VirtualMachineInstanceGuestOSUserList{})
	})
}

// asksAgent is ask for what the guest's agent does, as often as a guest that stands still for a while needs.
func (p *pod) asksAgent(kind wire.Type, in any) {
	p.t.Helper()
	p.retry(string(kind), func() error { return p.conn.Call(p.t.Context(), kind, in, nil) })
}

func (p *pod) freezes(t *testing.T) {
	frozen := func(want bool) func(protocol.State) bool {
		return func(s protocol.State) bool { return s.Frozen == want }
	}
	p.forget()
	p.asksAgent(protocol.TypeFreeze, protocol.Freeze{UnfreezeTimeoutSeconds: 1200})
	p.until("frozen file systems", frozen(true))
	run := protocol.GuestExec{Command: "/bin/true", TimeoutSeconds: 5}
	if err := p.conn.Call(t.Context(), protocol.TypeGuestExec, run, nil); err == nil {
		t.Error("a command runs while the file systems stand still; the agent refuses that")
	}
	p.asksAgent(protocol.TypeUnfreeze, nil)
	p.after("thawed file systems", frozen(true), frozen(false))
	p.exec("sync; echo written > /mnt/file")

	p.asksAgent(protocol.TypeFreeze, protocol.Freeze{UnfreezeTimeoutSeconds: 2})
	p.tells("file systems that thawed by themselves", frozen(false))
	p.exec("sync; echo written > /mnt/file")
}

func (p *pod) pauses(t *testing.T) {
	p.forget()
	p.ask(protocol.TypePause, nil)
	if state := p.until("a pause", phase(protocol.PhasePaused)); state.Reason != "PausedByUser" {
		t.Errorf("it is paused because of %s", state.Reason)
	}
	p.ask(protocol.TypePause, nil) // again, to no effect
	p.forget()
	p.ask(protocol.TypeUnpause, nil)
	p.until("the end of the pause", phase(protocol.PhaseRunning))
	p.ask(protocol.TypeUnpause, nil)
	p.exec("true")
}

func (p *pod) restarts(t *testing.T) {
	for _, kind := range []wire.Type{protocol.TypeSoftReboot, protocol.TypeReset} {
		p.exec("touch /tmp/before") // in memory
		run := p.exec(boot).Stdout
		if kind == protocol.TypeReset { // which needs no agent: until then there is none
			p.forget()
			p.execLast("mv $(readlink -f $(which qemu-ga)) /tmp/agent; (sleep 1; killall qemu-ga) >/dev/null 2>&1 &")
			p.until("the agent's loss", func(s protocol.State) bool { return s.Phase == protocol.PhaseRunning && !s.AgentConnected })
		}
		p.ask(kind, nil)
		p.restarted(run)
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
	p.until("the start", phase(protocol.PhaseRunning))
	p.until("the agent's report", agentUp)
	p.ask(protocol.TypeDestroy, nil)
	p.exit()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, seen := range p.states {
		if seen.Phase == protocol.PhaseRunning && seen.AgentConnected {
			break
		}
		if seen.Phase == protocol.PhaseRunning && seen.Since.Before(state.Since) {
			t.Errorf("it ran before it was let go: %+v", p.states)
		}
	}
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
