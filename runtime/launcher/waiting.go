package launcher

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/slipway-vm/slipway/runtime/launcher/disks"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// lookAgain is how soon a disk that is in use is looked at again. Nobody tells of its end, and
// who waited for its lock would have it for a moment, in which another's QEMU fails.
const lookAgain = 500 * time.Millisecond

// waiting is a start that waits for disks which others use.
type waiting struct {
	request *protocol.Sync // nil when nothing waits
	timer   *time.Timer
}

func newWaiting() waiting { return waiting{timer: stoppedTimer()} }

func (w *waiting) stop() {
	w.request = nil
	w.timer.Stop()
}

// leaseDisks takes the VMI's disks for it alone. It reports false when the start has to wait for
// one of them, or came to its end.
func (m *machine) leaseDisks(request protocol.Sync) bool {
	m.disks.Close()
	leases, err := disks.Lease(m.paths(), request.VMI)
	m.disks = leases
	var used *disks.InUseError
	switch {
	case err == nil:
		return true
	case errors.As(err, &used):
		m.waiting.request = &request
		m.waiting.timer.Reset(lookAgain)
		if m.state.Reason != protocol.ReasonDiskInUse || m.state.Message != used.Error() {
			m.enter(protocol.PhaseStarting, protocol.ReasonDiskInUse, used.Error())
		}
	default:
		m.fail("VolumesNotReady", err)
	}
	return false
}

// keepDisks hands the disks to QEMU again, which let go of them when libvirt went away. The
// launcher has them all the while.
func (m *machine) keepDisks(files []*os.File) {
	if err := m.domain.Keep(files); err != nil {
		m.log.Warn("Failed to hand the disks to QEMU again; the launcher keeps them for as long as it runs", "err", err)
	}
}

// startAgain starts a machine that waited for its disks.
func (m *machine) startAgain(ctx context.Context) {
	request := m.waiting.request
	if request == nil {
		return
	}
	m.waiting.stop()
	m.start(ctx, *request)
	if m.waiting.request == nil {
		m.trim()
	}
}

// lockRefused says whether QEMU did not start because another QEMU has a disk.
func lockRefused(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Failed to get") && strings.Contains(err.Error(), "lock")
}
