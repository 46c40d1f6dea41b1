package session

import (
	"context"
	"errors"
	"fmt"
	"os"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// ErrOldLauncher is returned by calls of users that the pod's launcher does not know.
var ErrOldLauncher = errors.New("the VM was started by an earlier version, whose launcher cannot do this; restart the VM")

// Pause stops the guest's processors.
func (s *Session) Pause(ctx context.Context) error {
	return s.control(ctx, protocol.TypePause, nil, nil)
}

// Unpause lets them go on.
func (s *Session) Unpause(ctx context.Context) error {
	return s.control(ctx, protocol.TypeUnpause, nil, nil)
}

// Reset presses the guest's reset button.
func (s *Session) Reset(ctx context.Context) error {
	return s.control(ctx, protocol.TypeReset, nil, nil)
}

// SoftReboot asks the guest to restart.
func (s *Session) SoftReboot(ctx context.Context) error {
	return s.control(ctx, protocol.TypeSoftReboot, nil, nil)
}

// Freeze makes the guest's file systems stand still, at most for seconds, or for the
// launcher's default when that is 0.
func (s *Session) Freeze(ctx context.Context, seconds int32) error {
	return s.control(ctx, protocol.TypeFreeze, protocol.Freeze{UnfreezeTimeoutSeconds: seconds}, nil)
}

// Unfreeze lets the guest's file systems go on.
func (s *Session) Unfreeze(ctx context.Context) error {
	return s.control(ctx, protocol.TypeUnfreeze, nil, nil)
}

// Connect joins stream, a connected stream socket, with a device of the guest. The
// launcher has its own copy of it afterwards.
func (s *Session) Connect(ctx context.Context, channel protocol.Channel, stream *os.File) error {
	return s.control(ctx, protocol.TypeConnect, protocol.Connect{Channel: channel}, nil, stream)
}

// Screenshot writes what the guest's screen shows to out, as PNG.
func (s *Session) Screenshot(ctx context.Context, out *os.File) error {
	return s.control(ctx, protocol.TypeScreenshot, nil, nil, out)
}

// GuestInfo is what the guest's agent tells.
func (s *Session) GuestInfo(ctx context.Context) (info v1.VirtualMachineInstanceGuestAgentInfo, err error) {
	err = s.control(ctx, protocol.TypeGuestInfo, nil, &info)
	return info, err
}

// Users are those who are logged in to the guest, as its agent tells.
func (s *Session) Users(ctx context.Context) (list v1.VirtualMachineInstanceGuestOSUserList, err error) {
	err = s.control(ctx, protocol.TypeUsers, nil, &list)
	return list, err
}

// Filesystems are those that the guest has mounted, as its agent tells.
func (s *Session) Filesystems(ctx context.Context) (list v1.VirtualMachineInstanceFileSystemList, err error) {
	err = s.control(ctx, protocol.TypeFilesystems, nil, &list)
	return list, err
}

// Stats is what the guest used since it was started.
func (s *Session) Stats(ctx context.Context) (stats protocol.Stats, err error) {
	launcher, err := s.answering(wire.VersionStats)
	if err != nil {
		return stats, err
	}
	return stats, away(launcher.conn.Call(ctx, protocol.TypeStats, nil, &stats))
}

// Resize changes the size of the running guest.
func (s *Session) Resize(ctx context.Context, want protocol.Resize) error {
	launcher, err := s.answering(wire.VersionResize)
	if err != nil {
		return err
	}
	return away(launcher.conn.Call(ctx, protocol.TypeResize, want, nil))
}

// control sends a request of a user, if the launcher is new enough for it.
func (s *Session) control(ctx context.Context, kind wire.Type, in, out any, files ...*os.File) error {
	launcher, err := s.atLeast(wire.VersionControl)
	if err != nil {
		return err
	}
	parts := []protocol.Part{protocol.PartLauncher, protocol.PartQEMU}
	if kind != protocol.TypeConnect { // which goes around libvirt
		parts = append(parts, protocol.PartLibvirt)
	}
	if err := s.answers(parts...); err != nil {
		return err
	}
	return away(launcher.conn.Call(ctx, kind, in, out, files...))
}

// atLeast returns the launcher, if it is connected and speaks version or a later one.
func (s *Session) atLeast(version int) (*client, error) {
	launcher, err := s.connected()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if launcher.version < version {
		return nil, ErrOldLauncher
	}
	return launcher, nil
}

// answering is atLeast for what needs the whole of the VM.
func (s *Session) answering(version int) (*client, error) {
	launcher, err := s.atLeast(version)
	if err != nil {
		return nil, err
	}
	return launcher, s.answers(protocol.PartLauncher, protocol.PartLibvirt, protocol.PartQEMU)
}

// away makes the loss of the connection known as such.
func away(err error) error {
	if errors.Is(err, wire.ErrClosed) {
		return fmt.Errorf("%w any more: %w", ErrNotConnected, err)
	}
	return err
}
