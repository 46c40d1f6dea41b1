// Package vsock connects with guests by the sockets that a hypervisor has for them, which Go's own
// package net does not know (vsock(7)).
package vsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Dial connects with a port of the guest that has the address cid.
func Dial(ctx context.Context, cid, port uint32) (net.Conn, error) {
	address := Address{CID: cid, Port: port}
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, fmt.Errorf("the node's kernel has no sockets to guests; load its module vhost_vsock: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("making a socket to a guest: %w", err)
	}
	return connect(ctx, fd, &unix.SockaddrVM{CID: cid, Port: port}, address)
}

// connect takes fd, a socket that does not block, and connects it with peer, which is shown as address.
func connect(ctx context.Context, fd int, peer unix.Sockaddr, address Address) (net.Conn, error) {
	begun := unix.Connect(fd, peer)
	file := os.NewFile(uintptr(fd), address.String()) // watched by the runtime, which a connection that has begun is needed for
	if begun != nil && !errors.Is(begun, unix.EINPROGRESS) {
		return nil, errors.Join(fmt.Errorf("connecting with %s: %w", address, begun), file.Close())
	}
	c := &conn{File: file, peer: address}
	if begun == nil {
		return c, nil
	}
	if err := c.established(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting with %s: %w", address, err), file.Close())
	}
	return c, nil
}

// conn is a connected socket as a net.Conn.
type conn struct {
	*os.File
	peer Address
}

// established waits until the connection stands.
func (c *conn) established(ctx context.Context) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("watching the socket: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var failure error
	err = raw.Write(func(fd uintptr) (done bool) {
		writable := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a file's number
		if n, err := unix.Poll(writable, 0); err == nil && n == 0 {
			return false // the runtime calls again once it can be written to
		}
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			failure = err
		case code != 0:
			failure = unix.Errno(code)
		}
		return true
	})
	if ctx.Err() != nil {
		return ctx.Err() //nolint:wrapcheck // the caller says what was being done
	}
	return errors.Join(err, failure)
}

// LocalAddr implements net.Conn. What the node's end is called means nothing to anybody.
func (c *conn) LocalAddr() net.Addr { return Address{CID: unix.VMADDR_CID_HOST} }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.peer }

// Address is a port of a guest.
type Address struct{ CID, Port uint32 }

// Network implements net.Addr.
func (Address) Network() string { return "vsock" }

// String is CID:port.
func (a Address) String() string { return fmt.Sprintf("%d:%d", a.CID, a.Port) }
