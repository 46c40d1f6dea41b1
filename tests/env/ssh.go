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
var guestAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 16}

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

// PowerOff has a tiny guest power itself off.
func PowerOff(ctx context.Context, address string, bound time.Duration) error {
	return leave(ctx, address, "poweroff", bound)
}

// Reboot has a tiny guest boot anew, at once.
func Reboot(ctx context.Context, address string, bound time.Duration) error {
	return leave(ctx, address, "reboot -f", bound)
}

// leave runs a command in a tiny guest that ends it. The guest may go before it has said how the
// command ended, so that a lost connection is no error; a command that fails is.
func leave(ctx context.Context, address, command string, bound time.Duration) error {
	err := inGuest(ctx, address, bound, func(session *ssh.Session) error {
		if err := session.Start(command); err != nil {
			return err
		}
		err := session.Wait()
		if failed := (*ssh.ExitError)(nil); errors.As(err, &failed) && failed.Signal() == "" { // the guest ends its processes by a signal
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("running %s on %s: %w", command, address, err)
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
	// What an attempt may take grows: a guest that nobody answers for is soon tried again, and a slow one
	// gets through.
	for connect, login := 5*time.Second, 30*time.Second; ; connect, login = min(2*connect, time.Minute), 2*login {
		conn, err := logIn(ctx, target, config, connect, login)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("logging in to %s: %w; the last attempt: %w", target, ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// logIn is one attempt, with bounds for the connection and for what the two sides say first.
func logIn(ctx context.Context, target string, config *ssh.ClientConfig, connect, login time.Duration) (*ssh.Client, error) {
	dialer := net.Dialer{Timeout: connect, KeepAliveConfig: guestAlive}
	socket, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	_ = socket.SetDeadline(time.Now().Add(login))
	conn, channels, requests, err := ssh.NewClientConn(socket, target, config)
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	_ = socket.SetDeadline(time.Time{})
	return ssh.NewClient(conn, channels, requests), nil
}
