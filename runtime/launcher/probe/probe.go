// Package probe is how a probe of the kubelet reaches the guest: the kubelet runs the
// small program virt-probe in the compute container, which asks the launcher over a unix
// socket, and that asks the guest's agent. Both come from one image, so there are no
// versions; one question and one answer, in JSON, make a connection.
package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"time"
)

// Kind is what a probe is for.
type Kind string

// Kinds of probes.
const (
	Liveness  Kind = "liveness"
	Readiness Kind = "readiness"
)

// Question is what a probe wants to know.
type Question struct {
	Kind Kind `json:"kind"`
	// Command is run in the guest, with its arguments; without one the guest's agent is pinged.
	Command        []string `json:"command,omitempty"`
	TimeoutSeconds int32    `json:"timeoutSeconds"`
}

// Answer is what the launcher found.
type Answer struct {
	Healthy bool `json:"healthy"`
	// Why says in a sentence why the guest is not healthy.
	Why string `json:"why,omitempty"`
}

const (
	// maxMessage bounds a question and an answer in bytes.
	maxMessage = 256 << 10
	// maxProbes is how many questions are open at a time; a VMI has two probes, and one
	// that takes too long may still be open when the next comes.
	maxProbes = 4
	// slack is what a probe may take beyond the guest's own time. It is less than the second
	// that the kubelet waits longer.
	slack = 500 * time.Millisecond
)

// Bound is how long a probe may take in all.
func (q Question) Bound() time.Duration {
	return time.Duration(max(q.TimeoutSeconds, 1))*time.Second + slack
}

// Ask sends a question to the launcher whose socket is at path.
func Ask(ctx context.Context, path string, question Question) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, question.Bound())
	defer cancel()
	var answer Answer
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return answer, fmt.Errorf("connecting to the launcher: %w", err)
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return answer, fmt.Errorf("bounding the question: %w", err)
	}
	if err := json.NewEncoder(conn).Encode(question); err != nil {
		return answer, fmt.Errorf("asking the launcher: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxMessage)).Decode(&answer); err != nil {
		return answer, fmt.Errorf("waiting for the launcher's answer: %w", err)
	}
	return answer, nil
}

// Serve answers questions at the socket path until ctx is done. answer is called in a
// goroutine for each.
func Serve(ctx context.Context, path string, answer func(context.Context, Question) Answer, log *slog.Logger) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the probes' old socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("making the probes' socket: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	slots := make(chan struct{}, maxProbes)
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting probes: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close() // the probe fails; more of them would only pile up
			continue
		}
		go func() {
			defer func() { <-slots }()
			if err := serve(ctx, conn, answer); err != nil {
				log.Warn("Failed to answer a probe", "err", err)
			}
		}()
	}
}

func serve(ctx context.Context, conn net.Conn, answer func(context.Context, Question) Answer) error {
	defer func() { _ = conn.Close() }()
	var question Question
	if err := conn.SetDeadline(time.Now().Add(slack)); err != nil {
		return fmt.Errorf("bounding the question: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxMessage)).Decode(&question); err != nil {
		return fmt.Errorf("reading the question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(question.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	found := answer(ctx, question)
	if err := conn.SetDeadline(time.Now().Add(slack)); err != nil {
		return fmt.Errorf("bounding the answer: %w", err)
	}
	if err := json.NewEncoder(conn).Encode(found); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}
