// Command launcher stands in for virt-launcher and container-disk in tests of the
// handler: it speaks the protocol and attaches to the taps, but runs no guest.
//
// usage: launcher container-disk|launcher|stubborn|old SOCKET_FOLDER ARGUMENT, the argument
// being a disk's file or the VMI's uid; or launcher volume SOCKET_FOLDER VOLUME, for an attachment pod. A stubborn launcher's guest ignores shutdowns; an old
// launcher is of the version before guests were measured.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// stubborn is the role of a launcher whose guest ignores shutdowns.
const stubborn = "stubborn"

// old is the role of a launcher that knows nothing of measuring.
const old = "old"

// launcher is what the stand-in knows of its guest.
type launcher struct {
	role, argument string

	mu    sync.Mutex
	state protocol.State
	conn  *wire.Conn
	// terminated says that a signal ends it.
	terminated bool
}

func main() {
	l := &launcher{role: os.Args[1], argument: os.Args[3]}
	terminate := make(chan os.Signal, 1)
	if l.role != stubborn {
		signal.Notify(terminate, syscall.SIGTERM)
	}
	go func() {
		<-terminate
		l.mu.Lock()
		l.terminated = true
		l.mu.Unlock()
		l.end(context.Background())
	}()
	if err := os.Chdir(os.Args[2]); err != nil { // the whole path may be too long for a socket
		fmt.Println(err)
		return
	}
	for {
		socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: names.LauncherSocketName, Net: "unix"})
		if err == nil {
			if err = l.converse(socket); err == nil && l.role == string(wire.RoleContainerDisk) {
				return
			}
			fmt.Println("lost", err)
		}
		time.Sleep(20 * time.Millisecond) // the real ones watch the folder
	}
}

func (l *launcher) converse(socket *net.UnixConn) error {
	ctx := context.Background()
	conn := wire.NewConn(socket, l.answer)
	served := make(chan error, 1)
	go func() { served <- conn.Serve(ctx) }()
	defer conn.Close()
	if l.role == string(wire.RoleContainerDisk) {
		file, err := os.Open(l.argument)
		if err != nil {
			return err
		}
		return conn.Call(ctx, wire.TypeHello, wire.Hello{Version: wire.Version, Role: wire.RoleContainerDisk, Volume: "root"}, nil, file)
	}
	hello := wire.Hello{Version: wire.Version, Role: wire.RoleLauncher, VMIUID: l.argument}
	if l.role == string(wire.RoleVolume) {
		hello = wire.Hello{Version: wire.Version, Role: wire.RoleVolume, Volume: l.argument}
	}
	if l.role == old {
		hello.Version = wire.VersionStats - 1
	}
	if err := conn.Call(ctx, wire.TypeHello, hello, nil); err != nil {
		return err
	}
	fmt.Println("greeted")
	if l.role == string(wire.RoleVolume) {
		return <-served
	}
	l.mu.Lock()
	l.conn = conn
	state := l.state
	l.mu.Unlock()
	if err := conn.Notify(protocol.TypeState, state); err != nil {
		return err
	}
	return <-served
}

func (l *launcher) answer(ctx context.Context, request wire.Request) (any, error) {
	switch request.Type {
	case protocol.TypeSync:
		return l.sync(request)
	case protocol.TypeShutdown:
		var shutdown protocol.Shutdown
		if err := request.Decode(&shutdown); err != nil {
			return nil, err
		}
		fmt.Println("shutdown within", shutdown.GracePeriodSeconds)
		if l.role != stubborn {
			go l.end(ctx)
		}
		return nil, nil
	case protocol.TypeDestroy:
		fmt.Println("destroy")
		go l.end(ctx)
		return nil, nil
	case protocol.TypePlug:
		return l.plug(request)
	case protocol.TypeMemoryDump:
		return l.dump(request)
	case protocol.TypeUnplug:
		return nil, l.unplug(request)
	case protocol.TypeStats:
		if l.role != old {
			return protocol.Stats{CPU: protocol.CPUStats{Total: new(uint64(2.5e9))}}, nil
		}
		fmt.Println(request.Type, "is asked of an old launcher")
	}
	return nil, fmt.Errorf("unknown request %s", request.Type)
}

func (l *launcher) sync(request wire.Request) (any, error) {
	var sync protocol.Sync
	if err := request.Decode(&sync); err != nil {
		return nil, err
	}
	tellFiles(sync.VMI)
	fmt.Println("sync", sync.VMI.Name, "with disks", sync.Facts.ContainerDisks, len(request.Files))
	if said := sync.Facts.SMBIOS; said != nil {
		fmt.Println("made by", said.Manufacturer)
	}
	if said := sync.Facts.BalloonPeriod; said != nil {
		fmt.Println("tells of memory every", *said, "s")
	}
	if said := sync.Facts.Options; said != nil {
		fmt.Println("without a log:", said.DisableSerialConsoleLog != nil)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Phase == protocol.PhaseRunning {
		return l.state, nil
	}
	for _, nic := range sync.Facts.Interfaces {
		if err := attach(nic.Tap); err != nil {
			return nil, fmt.Errorf("attaching to %s: %w", nic.Tap, err)
		}
	}
	l.state = protocol.State{Phase: protocol.PhaseStarting, Since: time.Now()}
	go l.start()
	return l.state, nil
}

func (l *launcher) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = protocol.State{
		Phase: protocol.PhaseRunning, Since: time.Now(), Machine: "pc-q35-10.0",
		Disks: []protocol.Disk{{Volume: "root", Target: "vda", Size: 1 << 20}},
	}
	if err := l.conn.Notify(protocol.TypeState, l.state); err != nil {
		fmt.Println("telling of the start:", err)
	}
}

func (l *launcher) end(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = protocol.State{Phase: protocol.PhaseShutdown, Since: time.Now(), Terminated: l.terminated}
	if err := l.conn.Call(ctx, protocol.TypeState, l.state, nil); err != nil {
		fmt.Println("telling of the end:", err)
	}
	fmt.Println("over")
	os.Exit(0)
}

// attach opens a tap as QEMU does, and keeps it.
func attach(tap string) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(tap)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
}
