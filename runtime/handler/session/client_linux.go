package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/process"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// client is a connected process of the pod.
type client struct {
	session *Session
	conn    *wire.Conn
	process *process.Process

	// Guarded by the session's lock.
	role         wire.Role // empty before its Hello
	version      int       // of the protocol, as its Hello says
	synced       *Synced
	shuttingDown bool
	asked        time.Time         // when it was asked for the VM's health; zero once it has answered
	told         *protocol.Silence // what it answered
	heard        bool              // it has answered
}

// converse serves one connection until it ends.
func (s *Session) converse(ctx context.Context, socket *net.UnixConn) {
	logger := log.FromContext(ctx)
	c := &client{session: s}
	c.conn = wire.NewConn(socket, c.handle)
	defer c.conn.Close()
	var err error
	if c.process, err = s.admit(c.conn); err != nil {
		logger.Error(err, "Refusing a connection to the pod's socket")
		return
	}
	defer c.process.Close()
	if err := c.conn.Serve(ctx); err != nil && ctx.Err() == nil {
		logger.Error(err, "A connection of the pod broke", "pid", c.process.PID())
	}
	s.leave(c)
}

// admit returns the process at the other end, if it is one of this pod's.
func (s *Session) admit(conn *wire.Conn) (*process.Process, error) {
	peer, err := conn.Peer()
	if err != nil {
		return nil, fmt.Errorf("asking who connects: %w", err)
	}
	if peer.Uid != names.QEMUUser {
		return nil, fmt.Errorf("process %d has uid %d, want %d", peer.Pid, peer.Uid, names.QEMUUser)
	}
	p, err := process.Open(int(peer.Pid))
	if err != nil {
		return nil, err
	}
	belongs, err := p.BelongsTo(s.pod.UID)
	if err == nil && !belongs {
		err = fmt.Errorf("process %d is in no cgroup of the pod with uid %s", peer.Pid, s.pod.UID)
	}
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

func (s *Session) leave(c *client) {
	s.mu.Lock()
	gone := s.launcher == c || s.holder == c
	if s.launcher == c {
		s.launcher, s.absent = nil, time.Now()
		s.judge(s.absent)
	}
	if s.holder == c {
		s.holder = nil
	}
	s.mu.Unlock()
	if gone {
		s.changed()
	}
}

// handle answers the client's messages.
func (c *client) handle(ctx context.Context, request wire.Request) (any, error) {
	keep := false
	defer func() {
		for _, file := range request.Files {
			if !keep {
				_ = file.Close()
			}
		}
	}()
	if request.Type == wire.TypeHello {
		var err error
		keep, err = c.hello(ctx, request)
		return wire.Hello{Version: wire.Version}, err
	}
	if request.Type == protocol.TypeState && c.isLauncher() {
		var state protocol.State
		if err := request.Decode(&state); err != nil {
			log.FromContext(ctx).Error(err, "The launcher sent a state that cannot be read")
			return nil, err
		}
		c.session.report(state)
		return nil, nil
	}
	return nil, fmt.Errorf("message %q is not known or came before hello", request.Type)
}

func (c *client) isLauncher() bool {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.role == wire.RoleLauncher
}

// hello takes the client in; it reports whether the files of the message are kept.
func (c *client) hello(ctx context.Context, request wire.Request) (bool, error) {
	var hello wire.Hello
	if err := request.Decode(&hello); err != nil {
		return false, err
	}
	switch {
	case hello.Version < 1:
		return false, fmt.Errorf("protocol version %d is not known; this handler speaks %d", hello.Version, wire.Version)
	case hello.Role == wire.RoleVolume:
		return false, c.helloVolume(ctx, hello)
	case c.session.pod.Volume != "":
		return false, fmt.Errorf("role %q has no business in an attachment pod", hello.Role)
	case hello.Role == wire.RoleLauncher:
		return false, c.helloLauncher(ctx, hello)
	case hello.Role == wire.RoleContainerDisk:
		return c.helloDisk(ctx, hello, request.Files)
	}
	return false, fmt.Errorf("role %q is not known", hello.Role)
}

func (c *client) helloLauncher(ctx context.Context, hello wire.Hello) error {
	s := c.session
	if hello.VMIUID != string(s.pod.VMIUID) {
		return fmt.Errorf("the launcher is of VMI %q, its pod of %q", hello.VMIUID, s.pod.VMIUID)
	}
	s.mu.Lock()
	previous := s.launcher
	c.role, c.version, s.launcher = wire.RoleLauncher, hello.Version, c
	s.judge(time.Now())
	s.mu.Unlock()
	if previous != nil && previous != c {
		_ = previous.conn.Close()
	}
	log.FromContext(ctx).Info("The launcher is connected", "pid", c.process.PID(), "version", hello.Version)
	s.changed()
	return nil
}

func (c *client) helloDisk(ctx context.Context, hello wire.Hello, files []*os.File) (bool, error) {
	if hello.Volume == "" || len(files) != 1 {
		return false, fmt.Errorf("a container disk is one volume and one file, got volume %q and %d files", hello.Volume, len(files))
	}
	if err := readOnlyFile(files[0]); err != nil {
		return false, fmt.Errorf("container disk of volume %s: %w", hello.Volume, err)
	}
	if err := c.session.keepDisk(hello.Volume, files[0]); err != nil {
		return false, err
	}
	log.FromContext(ctx).V(1).Info("A container disk was handed over", "volume", hello.Volume)
	c.session.changed()
	return true, nil
}

// TakeDisk holds a container disk for the launcher that is in an image volume of its pod, as if the pod
// had handed it over. The file is the session's from then on.
func (s *Session) TakeDisk(volume string, file *os.File) error {
	if err := readOnlyFile(file); err != nil {
		return err
	}
	return s.keepDisk(volume, file)
}

// readOnlyFile refuses what cannot be a container disk.
func readOnlyFile(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("looking at the file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("reading the file's flags: %w", err)
	}
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		return errors.New("it is open for writing; open it for reading only")
	}
	return nil
}
