package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/slipway-vm/slipway/runtime/launcher/dumpfile"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// errDumping is the answer to what would disturb a dump of the guest's memory.
var errDumping = errors.New("the guest's memory is being dumped; try again when that has ended")

// dumps are the dumps of the guest's memory, of which one goes on at a time.
type dumps struct {
	// beginning is held while one begins.
	beginning sync.Mutex
	// target is the file that QEMU writes; nil for none. Only the machine's goroutine changes it.
	target *dumpfile.File
	// settling is while what a dump that has ended wrote gets its name or is removed: its end may come once more, from a
	// libvirtd that is back. Likewise.
	settling bool
}

// abandon removes what a dump wrote that the machine did not live to see whole.
func (d *dumps) abandon() {
	if d.target != nil {
		_ = d.target.Discard() // nobody is left to be told
		d.target = nil
	}
}

// dumping says whether the guest's memory is being written: it stands still for as long.
func dumping(state protocol.State) bool {
	return slices.ContainsFunc(state.Dumps, func(dump protocol.Dump) bool { return dump.Ended == nil })
}

// dumpMemory begins to write the guest's memory to a file in the folder that came. A dump of that
// name is not made twice. That one could not begin is told like its failure later: by the state.
func (m *machine) dumpMemory(ctx context.Context, request wire.Request, _ protocol.State) (any, error) {
	var wanted protocol.MemoryDump
	if err := request.Decode(&wanted); err != nil {
		return nil, err
	}
	if len(request.Files) != 1 {
		return nil, fmt.Errorf("a memory dump is written to one folder, and %d came", len(request.Files))
	}
	m.dumps.beginning.Lock()
	defer m.dumps.beginning.Unlock()
	state, err := m.alive(ctx)
	if err != nil {
		return nil, err
	}
	same := func(dump protocol.Dump) bool { return dump.Volume == wanted.Volume && dump.File == wanted.File }
	if slices.ContainsFunc(state.Dumps, same) {
		return state, nil
	}
	if dumping(state) {
		return nil, errDumping
	}
	m.log.Info("Dumping the guest's memory", "volume", wanted.Volume, "file", wanted.File)
	if err := m.beginDump(ctx, wanted, request.Files[0]); err != nil {
		return nil, err
	}
	return m.alive(ctx)
}

// beginDump makes the file and tells of the dump before QEMU stops the guest for it, so that the
// guest is known to stand still for this.
func (m *machine) beginDump(ctx context.Context, wanted protocol.MemoryDump, folder *os.File) error {
	target, failure := dumpfile.Create(folder, wanted.File)
	err := m.do(ctx, func(context.Context) {
		m.dumps.target = target
		m.setDump(protocol.Dump{Volume: wanted.Volume, File: wanted.File, Began: time.Now().UTC()})
	})
	if err != nil {
		if target != nil {
			err = errors.Join(err, target.Discard())
		}
		return err
	}
	if failure == nil {
		failure = m.hv.DumpMemory(target.Open())
	}
	if failure == nil {
		return nil
	}
	return m.do(ctx, func(ctx context.Context) { m.dumped(ctx, failure.Error()) })
}

// dumped ends the dump that goes on. A file that is whole may take a while to reach its disk, so
// that is not waited for here.
func (m *machine) dumped(ctx context.Context, failure string) {
	if !dumping(m.state) || m.dumps.settling {
		return
	}
	target := m.dumps.target
	m.dumps.target, m.dumps.settling = nil, true
	go func() {
		if err := settle(target, failure); err != nil {
			failure = err.Error()
		}
		_ = m.do(ctx, func(context.Context) { m.dumpEnded(failure) }) // fails only at the end
	}()
}

// settle gives the file its name, or removes what is there of it. It returns why there is no file.
func settle(target *dumpfile.File, failure string) error {
	switch {
	case target == nil:
		return errors.New(failure)
	case failure != "":
		return errors.Join(errors.New(failure), target.Discard())
	}
	return target.Keep()
}

func (m *machine) dumpEnded(failure string) {
	m.dumps.settling = false
	i := slices.IndexFunc(m.state.Dumps, func(dump protocol.Dump) bool { return dump.Ended == nil })
	if i < 0 {
		return
	}
	dump, now := m.state.Dumps[i], time.Now().UTC()
	dump.Ended, dump.Error = &now, failure
	m.log.Info("The dump of the guest's memory has ended", "file", dump.File, "after", now.Sub(dump.Began).String(), "failure", failure)
	m.setDump(dump)
}

// setDump puts dump in the place of the volume's last one, and tells the handler.
func (m *machine) setDump(dump protocol.Dump) {
	all := slices.DeleteFunc(slices.Clone(m.state.Dumps), func(other protocol.Dump) bool { return other.Volume == dump.Volume })
	all = append(all, dump)
	m.state.Dumps = all
	m.link.Publish(m.state)
}

// missedDump looks for the end of a dump that came while libvirt was away.
func (m *machine) missedDump(ctx context.Context) {
	if m.dumps.target == nil {
		return
	}
	ended, failure, err := m.hv.MissedDump()
	if err != nil {
		m.log.Warn("Failed to ask for the dump that went on while libvirtd was away", "err", err)
		return
	}
	if ended {
		m.dumped(ctx, failure)
	}
}
