package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/slipway-vm/slipway/runtime/launcher/backupfolder"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// A backup is copied by QEMU itself, one job for each disk, to images that it got open. What it began it has until
// that is undone, whatever becomes of libvirtd meanwhile: so each end, and each return of libvirtd, is a look at what
// there is, in lookAtBackup, which does what is left to do.

// backupAborted is why a backup failed that somebody ended.
const backupAborted = "the backup was aborted"

// backupPause is when QEMU is looked at again that could not be asked.
const backupPause = 5 * time.Second

// backups are the backups of the guest's disks, of which one goes on at a time.
type backups struct {
	// beginning is held while one is taken in.
	beginning sync.Mutex
	// running goes on; nil for none. Only the machine's goroutine changes it.
	running *backing
	// count is how many disks were backed up, by which what is QEMU's is told apart. Whoever has beginning counts.
	count int
}

// backing is a backup that goes on.
type backing struct {
	wanted protocol.Backup
	// disks are known once begun. Then only who looks changes them.
	disks []copied
	// begun says that QEMU has begun, or could not: what there is of it can be looked at; looking that somebody
	// does, again that it is to be done once more. failure is why it is to fail. Only the machine's goroutine changes these.
	begun, looking, again bool
	failure               string
	// ended says that no disk is being copied any more. Only who looks has it.
	ended bool

	// mu is held by who has the folder in hands.
	mu     sync.Mutex
	folder *backupfolder.Folder
	// abandoned says that there is to be no folder.
	abandoned bool
}

// inBackup says whether the volume's disk is being copied.
func inBackup(state protocol.State, volume string) bool {
	return goesOn(state) && slices.ContainsFunc(state.Backup.Disks, func(disk protocol.BackupDisk) bool { return disk.Volume == volume })
}

// goesOn says whether a backup does.
func goesOn(state protocol.State) bool { return state.Backup != nil && state.Backup.Ended == nil }

// backUp begins to copy the guest's disks to files in the folder that came. That it could not begin is told
// like its failure later: by the state.
func (m *machine) backUp(ctx context.Context, request wire.Request, _ protocol.State) (any, error) {
	var wanted protocol.Backup
	if err := request.Decode(&wanted); err != nil {
		return nil, err
	}
	if len(request.Files) != 1 {
		return nil, fmt.Errorf("a backup is written to one folder, and %d came", len(request.Files))
	}
	m.backups.beginning.Lock()
	defer m.backups.beginning.Unlock()
	state, err := m.alive(ctx)
	switch {
	case err != nil:
		return nil, err
	case state.Backup != nil && state.Backup.ID == wanted.ID:
		return state, nil
	case goesOn(state):
		return nil, errors.New("another backup goes on; try again when that has ended")
	}
	claim, err := duplicate(request.Files[0])
	if err != nil {
		return nil, err
	}
	first := m.backups.count
	m.backups.count += len(wanted.Disks)
	b := &backing{wanted: wanted}
	err = m.do(ctx, func(ctx context.Context) { // ctx is the machine's from here on
		m.log.Info("Backing up the guest's disks", "backup", wanted.ID, "folder", wanted.Folder, "disks", len(wanted.Disks), "base", wanted.Base)
		m.backups.running = b
		m.setBackup(protocol.BackupState{ID: wanted.ID, Began: time.Now().UTC(), Disks: wanted.Disks})
		go m.beginBackup(ctx, b, claim, first)
	})
	if err != nil {
		closeAll([]*os.File{claim})
		return nil, err
	}
	return m.alive(ctx)
}

// abortBackup ends a backup, of which nothing stays; the state tells when that is so.
func (m *machine) abortBackup(ctx context.Context, request wire.Request, state protocol.State) (any, error) {
	var wanted protocol.AbortBackup
	if err := request.Decode(&wanted); err != nil {
		return nil, err
	}
	err := m.do(ctx, func(ctx context.Context) {
		if b := m.backups.running; b != nil && b.wanted.ID == wanted.ID {
			m.log.Info("Aborting the backup", "backup", wanted.ID)
			m.failBackup(b, backupAborted)
			m.lookAtBackup(ctx)
		}
		state = m.state
	})
	return state, err
}

// failBackup notes why a backup is to fail, the first time.
func (m *machine) failBackup(b *backing, why string) {
	if b.failure == "" {
		b.failure = why
	}
}

// setBackup tells the handler of the backup.
func (m *machine) setBackup(backup protocol.BackupState) {
	m.state.Backup = &backup
	m.link.Publish(m.state)
}

// lookAtBackup finds out how far QEMU is with the backup that has begun, and goes on from there.
func (m *machine) lookAtBackup(ctx context.Context) {
	b := m.backups.running
	switch {
	case b == nil || !b.begun:
		return
	case b.looking:
		b.again = true
		return
	}
	b.looking, b.again = true, false
	failure := b.failure
	go func() {
		over, failure, err := m.followBackup(b, failure)
		if err != nil {
			m.log.Warn("Failed to look at the backup; trying again", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(backupPause):
			}
		}
		_ = m.do(ctx, func(ctx context.Context) { // fails only at the end
			b.looking = false
			switch {
			case over:
				m.backupEnded(failure)
				return
			case failure != "":
				m.failBackup(b, failure)
			}
			if b.again || err != nil {
				m.lookAtBackup(ctx)
			}
		})
	}()
}

// backupEnded notes how the backup ended, "" for well.
func (m *machine) backupEnded(failure string) {
	m.backups.running = nil
	backup, now := *m.state.Backup, time.Now().UTC()
	backup.Ended, backup.Error = &now, failure
	m.log.Info("The backup has ended", "backup", backup.ID, "after", now.Sub(backup.Began).String(), "failure", failure)
	m.setBackup(backup)
}

// keep gives the files their names, all of which are whole.
func (b *backing) keep() error {
	folder := b.take(false)
	if folder == nil {
		return errors.New("the machine has ended")
	}
	return folder.Keep()
}

// take takes the folder out of everybody's hands; nil where somebody has. forGood says that there is to be none.
func (b *backing) take(forGood bool) *backupfolder.Folder {
	b.mu.Lock()
	defer b.mu.Unlock()
	folder := b.folder
	b.folder, b.abandoned = nil, b.abandoned || forGood
	return folder
}

// discard removes what was written.
func (b *backing) discard() error {
	if folder := b.take(true); folder != nil {
		return folder.Discard()
	}
	return nil
}

// abandon removes what a backup wrote that the machine did not live to see whole.
func (a *backups) abandon() {
	if a.running != nil {
		_ = a.running.discard() // nobody is left to be told
	}
}
