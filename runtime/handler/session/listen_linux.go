package session

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/names"
)

const (
	// socketMode lets the launcher connect, whatever its user; peers are checked.
	socketMode = 0o666
	// draftName is the socket's name until it can be connected to.
	draftName = "." + names.LauncherSocketName + ".new"
	backlog   = 16
)

// listenIn makes the socket in directory, in the place of an earlier one. It is made
// under another name and renamed when it is ready, so that who sees it can connect; the
// short path through /proc/self/fd keeps clear of the 108 bytes that an address may have.
// The pod may write in directory: no step follows a link of its making.
func listenIn(directory *os.File) (*net.UnixListener, error) {
	at := int(directory.Fd())
	if err := unix.Unlinkat(at, draftName, 0); err != nil && err != unix.ENOENT {
		return nil, fmt.Errorf("removing an unfinished socket: %w", err)
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket: %w", err)
	}
	file := os.NewFile(uintptr(socket), names.LauncherSocketName)
	defer file.Close() // the listener has a duplicate
	if err := unix.Bind(socket, &unix.SockaddrUnix{Name: fdPath(at) + "/" + draftName}); err != nil {
		return nil, fmt.Errorf("binding the socket: %w", err)
	}
	if err := openToAll(at, draftName); err != nil {
		return nil, err
	}
	if err := unix.Listen(socket, backlog); err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	own, ok := listener.(*net.UnixListener)
	if !ok {
		_ = listener.Close()
		return nil, fmt.Errorf("listening: got a %T", listener)
	}
	own.SetUnlinkOnClose(false)
	if err := unix.Renameat(at, draftName, at, names.LauncherSocketName); err != nil {
		_ = own.Close()
		return nil, fmt.Errorf("putting the socket in its place: %w", err)
	}
	return own, nil
}

// openToAll changes the mode of the socket name in directory at, and of nothing else.
func openToAll(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("finding the new socket: %w", err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("looking at the new socket: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("the pod put something else in the place of the new socket")
	}
	if err := unix.Chmod(fdPath(fd), socketMode); err != nil {
		return fmt.Errorf("opening the socket to the pod: %w", err)
	}
	return nil
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
