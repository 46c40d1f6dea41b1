// Package virtiofs runs the processes that show folders of the pod to the guest, one for each of
// its filesystems. They have no privilege, and no sandbox of their own, which needs some: the
// pod is theirs, as it is QEMU's.
package virtiofs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/launcher/process"
)

// Program is virtiofsd's path in the launcher image.
const Program = "/usr/libexec/virtiofsd"

// stopTimeout is how long a server may take to end once it is asked to.
const stopTimeout = 5 * time.Second

// wholeRange is how many user or group identifiers there are.
const wholeRange = 1<<32 - 1

// Share is a folder that the guest mounts.
type Share struct {
	// Name is that of the filesystem in the VMI, by which the guest mounts it.
	Name string
	// Dir is the folder, Socket the path where QEMU finds who serves it.
	Dir, Socket string
	// ReadOnly says that the guest cannot write.
	ReadOnly bool
}

// arguments of virtiofsd for the share, with its listening socket as file 3. Whoever makes a file
// in the guest, it is of the server's user, as which alone the server can make one.
func (s Share) arguments(user int, files uint64) []string {
	squash := fmt.Sprintf("squash-guest:0:%d:%d", user, uint32(wholeRange))
	args := []string{
		"--fd=3", "--shared-dir=" + s.Dir, "--sandbox=none", "--seccomp=kill", "--cache=auto", "--inode-file-handles=never",
		"--rlimit-nofile=" + strconv.FormatUint(files, 10), "--translate-uid=" + squash, "--translate-gid=" + squash, "--log-level=warn",
	}
	if s.ReadOnly {
		args = append(args, "--readonly")
	}
	return args
}

// Server is the process that serves a share.
type Server struct {
	Share
	cmd   *exec.Cmd
	ended chan struct{} // closed when it ended
	err   error         // how, once ended is closed

	mu   sync.Mutex
	said string // the last line of its messages
}

// Start starts program for share, as a child of the table. QEMU can connect at once: the socket is
// there before its server is, and goes with it.
func Start(children *process.Table, program string, share Share, log *slog.Logger) (*Server, error) {
	if info, err := os.Stat(share.Dir); err != nil {
		return nil, fmt.Errorf("looking at the folder of filesystem %s: %w", share.Name, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("filesystem %s: %s is no folder", share.Name, share.Dir)
	}
	socket, err := listen(share.Socket)
	if err != nil {
		return nil, fmt.Errorf("making the socket of filesystem %s: %w", share.Name, err)
	}
	defer func() { _ = socket.Close() }() // the child has its own
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe for the messages of filesystem %s: %w", share.Name, err)
	}
	//nolint:noctx // it serves for as long as QEMU runs: Stop ends it, after that
	cmd := exec.Command(program, share.arguments(os.Getuid(), openFiles())...)
	cmd.Env, cmd.Dir, cmd.Stderr, cmd.ExtraFiles = []string{}, "/", write, []*os.File{socket}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // signals to the launcher's group are the launcher's
	err = children.Start(cmd)
	_ = write.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serving filesystem %s: %w", share.Name, err), read.Close(), remove(share.Socket))
	}
	server := &Server{Share: share, cmd: cmd, ended: make(chan struct{})}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		server.listenTo(read, log.With("filesystem", share.Name))
	}()
	go func() {
		server.err = children.Wait(cmd)
		<-heard // what it said last says why
		close(server.ended)
	}()
	return server, nil
}

// listen makes a unix socket on which one client is waited for. It waits like a plain file, for
// the server knows no other.
func listen(path string) (*os.File, error) {
	if err := remove(path); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	socket := os.NewFile(uintptr(fd), path)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening at %s: %w", path, err), socket.Close())
	}
	return socket, nil
}

// remove drops the socket of an earlier server.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing an earlier socket: %w", err)
	}
	return nil
}

// openFiles is how many files a process may have open here: the server has one open for each that the guest knows.
func openFiles() uint64 {
	const most = 1 << 20
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0 // the server leaves it as it is
	}
	return min(limit.Max, most)
}

// listenTo passes on what the server says, and keeps the last of it.
func (s *Server) listenTo(messages io.ReadCloser, log *slog.Logger) {
	defer func() { _ = messages.Close() }()
	lines := bufio.NewScanner(messages)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		log.Warn("Message of virtiofsd", "text", line)
		s.mu.Lock()
		s.said = line
		s.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, messages) // after a line that is too long, so that it need not wait for a reader
}

// PID is the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Ended is closed when the server has ended, which it does by itself once QEMU has.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// How says how the server ended, with its last words; empty while it runs.
func (s *Server) How() string {
	select {
	case <-s.ended:
	default:
		return ""
	}
	how := "exit status 0"
	if s.err != nil {
		how = s.err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said != "" {
		how += "; it said: " + s.said
	}
	return fmt.Sprintf("virtiofsd of filesystem %s ended: %s", s.Name, how)
}

// Failure is How as an error; nil while the server runs, and when it ended because QEMU left it.
func (s *Server) Failure() error {
	if how := s.How(); how != "" && s.err != nil {
		return errors.New(how)
	}
	return nil
}

// Stop ends the server, by force when it does not end otherwise, and removes its socket.
func (s *Server) Stop() error {
	_ = s.cmd.Process.Signal(unix.SIGTERM) // it may have ended by itself
	timer := time.AfterFunc(stopTimeout, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	<-s.ended
	return remove(s.Socket)
}
