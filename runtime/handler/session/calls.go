package session

import (
	"context"
	"errors"
	"fmt"
	"os"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Sync tells the launcher to run vmi with the facts of what and the container disks at
// hand, and keeps its answer as the session's state and what for View.Synced. It does not wait for a
// part of the VM that does not answer.
func (s *Session) Sync(ctx context.Context, vmi *v1.VirtualMachineInstance, what Synced) error {
	launcher, err := s.connected()
	if err != nil {
		return err
	}
	files, volumes := s.heldDisks()
	reports := s.reported()
	ctx, stop := s.untilSilence(ctx)
	defer stop()
	what.Facts.ContainerDisks = volumes
	var state protocol.State
	if err := launcher.conn.Call(ctx, protocol.TypeSync, protocol.Sync{VMI: vmi, Facts: what.Facts}, &state, files...); err != nil {
		if errors.Is(context.Cause(ctx), ErrSilent) {
			return fmt.Errorf("syncing VMI %s: a part of it %w", vmi.Name, ErrSilent)
		}
		return fmt.Errorf("syncing VMI %s: %w", vmi.Name, err)
	}
	s.mu.Lock()
	launcher.synced = &what
	if s.reports == reports { // an event that came meanwhile is as new or newer
		s.state = &state
	}
	s.mu.Unlock()
	return nil
}

// Shutdown asks the launcher to end its guest within the grace period, once for each
// connection.
func (s *Session) Shutdown(ctx context.Context, graceSeconds int64) error {
	launcher, err := s.connected()
	if err != nil {
		return err
	}
	request := protocol.Shutdown{GracePeriodSeconds: graceSeconds}
	if err := launcher.conn.Call(ctx, protocol.TypeShutdown, request, nil); err != nil {
		return fmt.Errorf("asking for a shutdown: %w", err)
	}
	s.mu.Lock()
	launcher.shuttingDown = true
	s.mu.Unlock()
	return nil
}

// Destroy powers the guest off at once.
func (s *Session) Destroy(ctx context.Context) error {
	launcher, err := s.connected()
	if err != nil {
		return err
	}
	if err := launcher.conn.Call(ctx, protocol.TypeDestroy, nil, nil); err != nil {
		return fmt.Errorf("powering off: %w", err)
	}
	return nil
}

// GuestExec runs a command in the guest through its agent.
func (s *Session) GuestExec(ctx context.Context, request protocol.GuestExec) (protocol.GuestExecResult, error) {
	var result protocol.GuestExecResult
	launcher, err := s.answering(0)
	if err != nil {
		return result, err
	}
	if err := launcher.conn.Call(ctx, protocol.TypeGuestExec, request, &result); err != nil {
		return result, fmt.Errorf("running %s in the guest: %w", request.Command, err)
	}
	return result, nil
}

func (s *Session) connected() (*client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.launcher == nil {
		return nil, ErrNotConnected
	}
	return s.launcher, nil
}

// reported counts the states that came so far.
func (s *Session) reported() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reports
}

// heldDisks returns the container disks with their volumes, in the order of volumes.
func (s *Session) heldDisks() ([]*os.File, []string) {
	volumes := s.View().Disks
	s.mu.Lock()
	defer s.mu.Unlock()
	var files []*os.File
	var held []string
	for _, volume := range volumes {
		if file := s.disks[volume]; file != nil {
			files, held = append(files, file), append(held, volume)
		}
	}
	return files, held
}
