package guestagent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Limits of a command in the guest.
const (
	defaultTimeout = 30 * time.Second
	// maxOutput bounds each stream in bytes, so that a result fits one message.
	maxOutput = 768 << 10
	// The agent has no event for the end of a command, so its status is asked for,
	// at first often, then less so.
	firstPause, lastPause = 20 * time.Millisecond, time.Second
)

// execStatus is the agent's answer to guest-exec-status.
type execStatus struct {
	Exited      bool   `json:"exited"`
	ExitCode    int    `json:"exitcode"`
	Signal      int    `json:"signal"`
	Stdout      string `json:"out-data"`
	Stderr      string `json:"err-data"`
	StdoutIsCut bool   `json:"out-truncated"`
	StderrIsCut bool   `json:"err-truncated"`
}

// Exec runs a command in the guest and waits for its end, at most for
// run.TimeoutSeconds (30 when zero). A command that outlives that goes on running in
// the guest: its agent cannot end it.
func Exec(ctx context.Context, channel Channel, run protocol.GuestExec) (protocol.GuestExecResult, error) {
	if run.Command == "" {
		return protocol.GuestExecResult{}, errors.New("no command to run in the guest; name one")
	}
	timeout := time.Duration(run.TimeoutSeconds) * time.Second
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pid, err := Start(ctx, channel, run)
	if err != nil {
		return protocol.GuestExecResult{}, err
	}
	result, err := Wait(ctx, channel, pid)
	if err != nil {
		return result, fmt.Errorf("waiting for %s in the guest (at most %s): %w", run.Command, timeout, err)
	}
	return result, nil
}

// Start starts a command in the guest and returns by which number its agent knows it.
func Start(ctx context.Context, channel Channel, run protocol.GuestExec) (int64, error) {
	var started struct {
		PID int64 `json:"pid"`
	}
	arguments := map[string]any{"path": run.Command, "arg": run.Args, "capture-output": true}
	if run.Args == nil {
		delete(arguments, "arg")
	}
	if err := call(ctx, channel, "guest-exec", arguments, &started); err != nil {
		return 0, fmt.Errorf("starting %s in the guest: %w", run.Command, err)
	}
	return started.PID, nil
}

// Wait waits for the end of a command that was started.
func Wait(ctx context.Context, channel Channel, pid int64) (protocol.GuestExecResult, error) {
	status, err := waitExited(ctx, channel, pid)
	if err != nil {
		return protocol.GuestExecResult{}, err
	}
	return status.result()
}

// Running says whether a command that was started still runs. It fails too for one that
// the agent knows no more.
func Running(ctx context.Context, channel Channel, pid int64) (bool, error) {
	var status execStatus
	err := call(ctx, channel, "guest-exec-status", map[string]int64{"pid": pid}, &status)
	return err == nil && !status.Exited, err
}

func waitExited(ctx context.Context, channel Channel, pid int64) (execStatus, error) {
	pause := firstPause
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		var status execStatus
		if err := call(ctx, channel, "guest-exec-status", map[string]int64{"pid": pid}, &status); err != nil && (!late(err) || ctx.Err() != nil) {
			return status, err
		}
		if status.Exited {
			return status, nil
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return status, fmt.Errorf("waiting for the command to end: %w", ctx.Err())
		case <-timer.C:
		}
		pause = min(2*pause, lastPause)
	}
}

// result decodes the streams. A command ended by a signal counts as a shell counts it.
func (s execStatus) result() (protocol.GuestExecResult, error) {
	out := protocol.GuestExecResult{ExitCode: s.ExitCode, Truncated: s.StdoutIsCut || s.StderrIsCut}
	if s.Signal != 0 {
		out.ExitCode = 128 + s.Signal
	}
	for _, stream := range []struct {
		encoded string
		target  *string
	}{{s.Stdout, &out.Stdout}, {s.Stderr, &out.Stderr}} {
		data, err := base64.StdEncoding.DecodeString(stream.encoded)
		if err != nil {
			return out, fmt.Errorf("decoding the command's output: %w", err)
		}
		if len(data) > maxOutput {
			data, out.Truncated = data[:maxOutput], true
		}
		*stream.target = string(data)
	}
	return out, nil
}
