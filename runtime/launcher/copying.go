package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/launcher/backupfolder"
	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/launcher/qcow2"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// copied is a disk that is backed up.
type copied struct {
	hypervisor.Copy

	volume string
	// n tells the disk from all others that were backed up.
	n    int
	size int64
	// needs is about how many bytes the copy takes; 0 where nobody knows.
	needs int64
	// written says that QEMU holds nothing of the copy any more. Who looks changes it.
	written bool
	// former are the bitmaps of the tracker that the new one takes the place of.
	former []string
}

// planCopies says how the disks of wanted are copied that devices are, the first as number first; incremental
// says that only what has changed is: every disk knows what has.
func planCopies(wanted protocol.Backup, devices map[string]hypervisor.BlockDevice, first int) (disks []copied, incremental bool, err error) {
	incremental = wanted.Base != "" && wanted.Tracker != ""
	for i, disk := range wanted.Disks {
		device, there := devices[domain.AliasPrefix+disk.Volume]
		if !there {
			return nil, false, fmt.Errorf("the guest has no disk of volume %s", disk.Volume)
		}
		one := copied{volume: disk.Volume, n: first + i, size: device.Size}
		one.Job = hypervisor.BackupPrefix + strconv.Itoa(one.n)
		one.Node, one.Target = device.Node, one.Job+"-target"
		if wanted.Checkpoint != "" {
			one.New = bitmapName(wanted.Tracker, wanted.Checkpoint)
		}
		for name := range device.Bitmaps {
			if wanted.Tracker != "" && strings.HasPrefix(name, bitmapName(wanted.Tracker, "")) && name != one.New {
				one.former = append(one.former, name)
			}
		}
		_, known := device.Bitmaps[bitmapName(wanted.Tracker, wanted.Base)]
		incremental = incremental && known
		disks = append(disks, one)
	}
	for i := range disks {
		device := devices[domain.AliasPrefix+disks[i].volume]
		disks[i].needs = device.Used
		if incremental {
			disks[i].Since = bitmapName(wanted.Tracker, wanted.Base)
			disks[i].needs = device.Bitmaps[disks[i].Since]
		}
	}
	return disks, incremental, nil
}

// bitmapName is what QEMU calls the record of what was written since a tracker's checkpoint.
func bitmapName(tracker, checkpoint string) string {
	return hypervisor.BackupPrefix + tracker + "-" + checkpoint
}

// bytesPerTable is of how many bytes of a disk an image's tables take one.
const bytesPerTable = 8 << 10

// roomFor refuses copies for which there is no room.
func roomFor(disks []copied, free int64) error {
	var needs int64
	for _, disk := range disks {
		needs += disk.needs + disk.size/bytesPerTable
	}
	if needs <= free {
		return nil
	}
	return fmt.Errorf("the claim has room for %s, and the backup takes about %s; remove earlier backups from it, or use a larger one",
		resource.NewQuantity(free, resource.BinarySI), resource.NewQuantity(needs, resource.BinarySI))
}

// beginBackup does all up to when QEMU copies the disks.
func (m *machine) beginBackup(ctx context.Context, b *backing, claim *os.File, first int) {
	incremental, err := m.prepareBackup(b, claim, first)
	_ = claim.Close()
	var stood quiet
	if err == nil {
		stood = m.quiesce(ctx, b.wanted.SkipQuiesce)
		err = m.hv.Copy(copies(b.disks))
		stood.end(ctx)
	}
	_ = m.do(ctx, func(ctx context.Context) { // fails only at the end
		b.begun = true
		if err != nil {
			m.failBackup(b, err.Error())
		} else {
			backup := *m.state.Backup
			backup.Copying, backup.Incremental, backup.Quiesce, backup.Warning = true, incremental, stood.how, stood.warning
			backup.Disks = targets(m.state.Disks, backup.Disks)
			m.setBackup(backup)
		}
		m.lookAtBackup(ctx)
	})
}

func copies(disks []copied) []hypervisor.Copy {
	all := make([]hypervisor.Copy, 0, len(disks))
	for _, disk := range disks {
		all = append(all, disk.Copy)
	}
	return all
}

// targets are disks with what the guest's are called.
func targets(has []protocol.Disk, disks []protocol.BackupDisk) []protocol.BackupDisk {
	all := make([]protocol.BackupDisk, 0, len(disks))
	for _, disk := range disks {
		for _, one := range has {
			if one.Volume == disk.Volume {
				disk.Target = one.Target
			}
		}
		all = append(all, disk)
	}
	return all
}

// prepareBackup makes the files, of which QEMU has images once they are made.
func (m *machine) prepareBackup(b *backing, claim *os.File, first int) (incremental bool, err error) {
	devices, err := m.hv.BlockDevices()
	if err != nil {
		return false, err
	}
	disks, incremental, err := planCopies(b.wanted, devices, first)
	if err != nil {
		return false, err
	}
	files, err := b.makeFiles(claim, disks)
	if err != nil {
		return false, err
	}
	for i, disk := range disks {
		b.disks = append(b.disks, disk) // what may be there from now on is to go
		if err := m.hv.OpenTarget(disk.Target, disk.n, files[i]); err != nil {
			return false, err
		}
	}
	return incremental, nil
}

// makeFiles makes the folder, and in it an empty image for each disk.
func (b *backing) makeFiles(claim *os.File, disks []copied) ([]*os.File, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.abandoned {
		return nil, errors.New("the machine has ended")
	}
	var err error
	if b.folder, err = backupfolder.Create(claim, b.wanted.Folder); err != nil {
		return nil, err
	}
	free, err := b.folder.Free()
	if err != nil {
		return nil, err
	}
	if err := roomFor(disks, free); err != nil {
		return nil, err
	}
	var files []*os.File
	for i, disk := range disks {
		file, err := b.folder.File(b.wanted.Disks[i].File)
		if err != nil {
			return nil, err
		}
		if err := qcow2.Write(file, disk.size, nil); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// quiet is how the guest's file systems stand while QEMU begins.
type quiet struct {
	how     protocol.Quiesce
	warning string
	// thaw is nil where there is nothing to thaw.
	thaw func(context.Context) error
}

// end lets the file systems go on that were made to stand still. Where the agent does not do so, it is asked again
// later; that is no reason for a backup to fail.
func (q *quiet) end(ctx context.Context) {
	if q.thaw == nil {
		return
	}
	if err := q.thaw(ctx); err != nil {
		q.warning = "Failed to unfreeze the guest's file systems, which is tried again: " + err.Error()
	}
}

// quiesce makes the guest's file systems stand still by its agent, unless skip is set. They go on by themselves where
// this process is held up.
func (m *machine) quiesce(ctx context.Context, skip bool) quiet {
	if skip {
		return quiet{how: protocol.QuiesceSkipped}
	}
	var state protocol.State
	if err := m.do(ctx, func(context.Context) { state = m.state }); err != nil {
		return quiet{how: protocol.QuiesceFailed, warning: err.Error()}
	}
	var err error
	switch {
	case state.Frozen: // by somebody else, who thaws them
		return quiet{how: protocol.QuiesceSucceeded}
	case state.Phase == protocol.PhasePaused:
		err = errors.New("the guest is paused, and its agent with it")
	case !state.AgentConnected:
		err = errNoAgent
	default:
		err = m.freezeForBackup(ctx)
	}
	if err != nil {
		return quiet{how: protocol.QuiesceFailed, warning: "Failed freezing guest filesystem: " + err.Error()}
	}
	return quiet{how: protocol.QuiesceSucceeded, thaw: m.thawAfterBackup}
}

// freezeForBackup makes the file systems stand still. One that was asked for and failed may take place all the same, so it is
// undone.
func (m *machine) freezeForBackup(ctx context.Context) error {
	if err := m.do(ctx, func(context.Context) { m.thaw.Reset(defaultFreeze) }); err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	if err := guestagent.Freeze(asking, m.hv); err != nil {
		_ = m.thawAfterBackup(ctx) // it is tried again
		return err
	}
	return nil
}

// thawAfterBackup lets the file systems go on, unless somebody else has meanwhile asked that they stand still.
func (m *machine) thawAfterBackup(ctx context.Context) error {
	others := false
	if err := m.do(ctx, func(context.Context) { others = m.state.Frozen }); err != nil || others {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	err := guestagent.Thaw(asking, m.hv)
	_ = m.do(ctx, func(context.Context) { // fails only at the end
		switch {
		case m.state.Frozen:
		case err != nil:
			m.thaw.Reset(thawAgain)
		default:
			m.thaw.Stop()
		}
	})
	return err
}
