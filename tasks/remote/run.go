package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrHostKey is returned when the VM shows a key other than those asked for.
var ErrHostKey = errors.New("the VM's host key is not the one in host-public-key")

// Command is what to run in a VM.
type Command struct {
	// Text is a line or script for the login shell of the user.
	Text string
	// Out and Err take what the command prints.
	Out, Err io.Writer
}

// Quote makes one shell line of words, in which each word stays one word.
func Quote(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// Run connects to address, waiting until the VM's SSH server answers or ctx ends, and runs
// the command. It returns the command's exit code; an error means that there is none.
func (a *Access) Run(ctx context.Context, log *slog.Logger, address string, command Command) (int, error) {
	conn, err := a.connect(ctx, log, address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	session, err := conn.NewSession()
	if err != nil {
		return 0, fmt.Errorf("opening a session on %s: %w", address, err)
	}
	session.Stdout, session.Stderr = command.Out, command.Err
	err = session.Run(command.Text)
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, nil
	case ctx.Err() != nil:
		return 0, fmt.Errorf("running the command on %s: %w", address, ctx.Err())
	case errors.As(err, &exit) && exit.Signal() != "":
		return 128, fmt.Errorf("the command on %s was ended by signal %s", address, exit.Signal())
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	}
	return 0, fmt.Errorf("running the command on %s: %w", address, err)
}

// connect dials until the server answers. A guest that boots says nothing of its SSH server, so
// this is the one wait that has to try again; a refused login or a wrong host key ends it.
func (a *Access) connect(ctx context.Context, log *slog.Logger, address string) (*ssh.Client, error) {
	target := net.JoinHostPort(address, strconv.Itoa(a.Port))
	config := &ssh.ClientConfig{
		User: a.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(a.Signer)},
		HostKeyCallback: a.checkHostKey, Timeout: a.Timeout,
	}
	var conn *ssh.Client
	last := errors.New("it was not tried")
	refused := 0
	backoff := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 1.5, Cap: 5 * time.Second, Steps: 8, Jitter: 0.1}
	err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var err error
		conn, err = dial(ctx, target, config)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, ErrHostKey):
			return false, err
		case strings.Contains(err.Error(), "unable to authenticate"):
			// A guest's first boot may start the server before the key is in place.
			if refused++; refused == 20 {
				return false, fmt.Errorf("logging in as %s: %w", a.User, err)
			}
		}
		if err.Error() != last.Error() {
			log.Info("waiting for SSH", "address", target, "reason", err.Error())
		}
		last = err
		return false, nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connecting to %s: %w; the last attempt: %w", target, context.Cause(ctx), last)
		}
		return nil, fmt.Errorf("connecting to %s: %w", target, err)
	}
	return conn, nil
}

func dial(ctx context.Context, target string, config *ssh.ClientConfig) (*ssh.Client, error) {
	dialer := net.Dialer{Timeout: config.Timeout}
	socket, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says where it connects to
	}
	_ = socket.SetDeadline(time.Now().Add(2 * config.Timeout)) // the handshake has no bound of its own
	conn, channels, requests, err := ssh.NewClientConn(socket, target, config)
	if err != nil {
		_ = socket.Close()
		return nil, err //nolint:wrapcheck // the caller says where it connects to
	}
	_ = socket.SetDeadline(time.Time{})
	return ssh.NewClient(conn, channels, requests), nil
}

func (a *Access) checkHostKey(_ string, _ net.Addr, shown ssh.PublicKey) error {
	if a.HostKeys == nil {
		return nil
	}
	for _, key := range a.HostKeys {
		if bytes.Equal(key.Marshal(), shown.Marshal()) {
			return nil
		}
	}
	return fmt.Errorf("%w: it showed %s", ErrHostKey, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(shown))))
}
