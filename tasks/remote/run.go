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
var ErrHostKey = errors.New("REMOTE HOST IDENTIFICATION HAS CHANGED: the VM's host key is not the one in host-public-key")

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
	session, err := conn.NewSession()
	if err != nil {
		return 0, fmt.Errorf("opening a session on %s: %w", address, err)
	}
	started := time.Now()
	stop := context.AfterFunc(ctx, func() {
		_ = session.Signal(ssh.SIGTERM) // a server that knows signals ends the command
		_ = conn.Close()
	})
	defer stop()
	session.Stdout, session.Stderr = command.Out, command.Err
	err = session.Run(command.Text)
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, nil
	case ctx.Err() != nil:
		return 0, fmt.Errorf("the command on %s was still running after %s", address, time.Since(started).Round(time.Second))
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
		HostKeyCallback: a.checkHostKey, HostKeyAlgorithms: a.hostKeyAlgorithms(), Timeout: a.Timeout,
	}
	var conn *ssh.Client
	last := errors.New("it was not tried")
	refused := 0
	backoff := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 1.5, Cap: 5 * time.Second, Steps: 8, Jitter: 0.1}
	waited := "the SSH server at " + target
	err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var err error
		conn, err = dial(ctx, target, config)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, ErrHostKey):
			return false, err
		case strings.Contains(err.Error(), "unable to authenticate"):
			waited = "the login as " + a.User + " at " + target
			// A guest's first boot may start the server before the key is in place.
			if refused++; refused == 20 {
				return false, fmt.Errorf("Permission denied: logging in as %s: %w", a.User, err) //nolint:staticcheck // in the words of ssh, which clients look for
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
			return nil, fmt.Errorf("timed out waiting for the condition: waited for %s; the last attempt: %w", waited, last)
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

// hostKeyAlgorithms asks the VM for a key of the kinds that are known; nil asks for any.
func (a *Access) hostKeyAlgorithms() []string {
	var algorithms []string
	for _, key := range a.HostKeys {
		if key.Type() == ssh.KeyAlgoRSA {
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		}
		algorithms = append(algorithms, key.Type())
	}
	return algorithms
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
