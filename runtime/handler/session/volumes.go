package session

import (
	"context"
	"fmt"
	"os"
	"path"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
	"github.com/slipway-vm/slipway/runtime/volume"
)

// helloVolume takes in the process of an attachment pod.
func (c *client) helloVolume(ctx context.Context, hello wire.Hello) error {
	s := c.session
	if s.pod.Volume == "" || hello.Volume != s.pod.Volume {
		return fmt.Errorf("the pod holds the volume %q of a VMI, its process says %q", s.pod.Volume, hello.Volume)
	}
	s.mu.Lock()
	c.role, c.version, s.holder = wire.RoleVolume, hello.Version, c
	s.mu.Unlock()
	log.FromContext(ctx).Info("A volume is on the node", "volume", hello.Volume)
	s.changed()
	return nil
}

// HoldsVolume says whether the session is that of an attachment pod whose volume is there.
func (s *Session) HoldsVolume() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holder != nil
}

// Volume opens the folder of the claim that the attachment pod has.
func (s *Session) Volume() (*os.File, error) {
	s.mu.Lock()
	holder := s.holder
	s.mu.Unlock()
	if holder == nil {
		return nil, fmt.Errorf("pod %s has not said yet that its volume is there", s.pod.Name)
	}
	folder, err := holder.process.OpenDirectory(path.Join(names.LauncherDisksDir, s.pod.Volume))
	if err != nil {
		return nil, fmt.Errorf("opening volume %s in pod %s: %w", s.pod.Volume, s.pod.Name, err)
	}
	return folder, nil
}

// Device opens the block device of the claim that the attachment pod has, as access says. One that
// is to be the guest's alone, and is not free, is process.ErrInUse.
func (s *Session) Device(access volume.Access) (*os.File, error) {
	s.mu.Lock()
	holder := s.holder
	s.mu.Unlock()
	if holder == nil {
		return nil, fmt.Errorf("pod %s has not said yet that its volume is there", s.pod.Name)
	}
	flags := os.O_RDONLY
	if access.Writes {
		flags = os.O_RDWR
	}
	if access.Alone {
		flags |= os.O_EXCL
	}
	device, err := holder.process.OpenBlock(path.Join(names.LauncherBlockDir, s.pod.Volume), flags)
	if err != nil {
		return nil, fmt.Errorf("opening volume %s in pod %s: %w", s.pod.Volume, s.pod.Name, err)
	}
	return device, nil
}

// Plug gives the guest one more disk, with the folder of its claim unless that is in the
// launcher's own pod.
func (s *Session) Plug(ctx context.Context, what protocol.Plug, claim ...*os.File) error {
	return s.plug(ctx, wire.VersionHotplug, what, claim)
}

// PlugDevice gives the guest one more disk, which is the open block device.
func (s *Session) PlugDevice(ctx context.Context, what protocol.Plug, device *os.File) error {
	return s.plug(ctx, wire.VersionDevices, what, []*os.File{device})
}

// plug is for launchers from version on.
func (s *Session) plug(ctx context.Context, version int, what protocol.Plug, claim []*os.File) error {
	launcher, err := s.answering(version)
	if err != nil {
		return err
	}
	reports := s.reported()
	var state protocol.State
	if err := launcher.conn.Call(ctx, protocol.TypePlug, what, &state, claim...); err != nil {
		return away(err)
	}
	s.take(state, reports)
	return nil
}

// DumpMemory has the guest's memory written to a file in the folder of a claim; the launcher's state
// tells when it is there.
func (s *Session) DumpMemory(ctx context.Context, what protocol.MemoryDump, claim *os.File) error {
	launcher, err := s.answering(wire.VersionMemoryDump)
	if err != nil {
		return err
	}
	reports := s.reported()
	var state protocol.State
	if err := launcher.conn.Call(ctx, protocol.TypeMemoryDump, what, &state, claim); err != nil {
		return away(err)
	}
	s.take(state, reports)
	return nil
}

// BackUp has the guest's disks written to files in the folder of a claim; the launcher's state tells when they
// are there.
func (s *Session) BackUp(ctx context.Context, what protocol.Backup, claim *os.File) error {
	return s.backup(ctx, protocol.TypeBackup, what, claim)
}

// AbortBackup ends a backup; the launcher's state tells when nothing is left of it.
func (s *Session) AbortBackup(ctx context.Context, id string) error {
	return s.backup(ctx, protocol.TypeAbortBackup, protocol.AbortBackup{ID: id})
}

func (s *Session) backup(ctx context.Context, kind wire.Type, what any, files ...*os.File) error {
	launcher, err := s.answering(wire.VersionBackup)
	if err != nil {
		return err
	}
	reports := s.reported()
	var state protocol.State
	if err := launcher.conn.Call(ctx, kind, what, &state, files...); err != nil {
		return away(err)
	}
	s.take(state, reports)
	return nil
}

// take keeps state, an answer, unless an event came since there were reports: that is as new or newer.
func (s *Session) take(state protocol.State, reports int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reports == reports {
		s.state = &state
	}
}

// UnplugAgain is when a guest that keeps a disk is asked again to let go of it.
const UnplugAgain = 10 * time.Second

// Unplug asks the guest to let go of a disk; the launcher's state tells when it has. A guest
// that was asked just now, as leaving says, is not asked again: every answer is a new state.
func (s *Session) Unplug(ctx context.Context, what protocol.Unplug, leaving bool) error {
	launcher, err := s.answering(wire.VersionHotplug)
	if err != nil {
		return err
	}
	s.mu.Lock()
	recent := leaving && time.Since(s.asked[what.Volume]) < UnplugAgain
	if !recent {
		s.asked[what.Volume] = time.Now()
	}
	s.mu.Unlock()
	if recent {
		return nil
	}
	return away(launcher.conn.Call(ctx, protocol.TypeUnplug, what, nil))
}
