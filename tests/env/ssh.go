package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// tinyPassword is root's in the tiny guest.
const tinyPassword = "slipway"

// guestAlive finds out that a guest is gone, or has booted again, while a session waits for its
// answer: nothing is on its way to it then, so that only a probe can be refused.
var guestAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 8}

// Shell runs script as root in a tiny guest and returns what it printed. It waits until the
// guest's SSH server answers, at most for bound.
func Shell(ctx context.Context, address, script string, bound time.Duration) (string, error) {
	var out []byte
	err := inGuest(ctx, address, bound, func(session *ssh.Session) error {
		var err error
		out, err = session.CombinedOutput(script)
		return err
	})
	if err != nil {
		return string(out), fmt.Errorf("running %q on %s: %w; it printed: %s", script, address, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// PowerOff has a tiny guest power itself off. The guest may go before it has said how the
// command ended, so that a lost connection is no error; a command that fails is.
func PowerOff(ctx context.Context, address string, bound time.Duration) error {
	err := inGuest(ctx, address, bound, func(session *ssh.Session) error {
		if err := session.Start("poweroff"); err != nil {
			return err
		}
		err := session.Wait()
		if failed := (*ssh.ExitError)(nil); errors.As(err, &failed) && failed.Signal() == "" { // the guest ends its processes by a signal
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("powering %s off: %w", address, err)
	}
	return nil
}

// inGuest opens a session of root in a tiny guest and closes it when do has ended.
func inGuest(ctx context.Context, address string, bound time.Duration, do func(*ssh.Session) error) error {
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	conn, err := dialGuest(bounded, net.JoinHostPort(address, "22"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(bounded, func() { _ = conn.Close() })
	defer stop()
	session, err := conn.NewSession()
	if err != nil {
		return fmt.Errorf("opening a session: %w", err)
	}
	return do(session)
}

func dialGuest(ctx context.Context, target string) (*ssh.Client, error) {
	config := &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.Password(tinyPassword)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // a test guest makes its key at boot
	}
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		var last error
		dialer := net.Dialer{Timeout: 5 * time.Second, KeepAliveConfig: guestAlive}
		socket, err := dialer.DialContext(ctx, "tcp", target)
		if err == nil {
			_ = socket.SetDeadline(time.Now().Add(30 * time.Second))
			conn, channels, requests, err := ssh.NewClientConn(socket, target, config)
			if err == nil {
				_ = socket.SetDeadline(time.Time{})
				return ssh.NewClient(conn, channels, requests), nil
			}
			_ = socket.Close()
			last = err
		} else {
			last = err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("logging in to %s: %w; the last attempt: %w", target, ctx.Err(), last)
		case <-ticker.C:
		}
	}
}
