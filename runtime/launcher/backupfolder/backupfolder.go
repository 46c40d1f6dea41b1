// Package backupfolder makes the files of a backup in a folder of a claim that is mounted in another pod. The
// folder has its name only once all files are whole and on their disk.
package backupfolder

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/launcher/claimfolder"
)

const (
	// partial is the end of the name of a folder that is not whole.
	partial = ".partial"
	// stamp is how the name of a folder ends, besides that.
	stamp = "-2006-01-02_15-04-05"
	// suffix is that of the names of files.
	suffix = ".qcow2"
)

// Folder is one that is being filled.
type Folder struct {
	// parent is the machine's, content the backup's own; name is the last's name once it is whole.
	parent, content *os.File
	machine, name   string
	claim           *os.File
	files           []*os.File
}

// Create makes the folder of a backup on claim: path is the name of the machine's folder, and of the backup's own in that, which
// must not be there. What backups of the machine left there that did not live to be whole is removed: a machine has one at a time.
func Create(claim *os.File, path []string) (*Folder, error) {
	if len(path) != 2 || !claimfolder.Named(path[0]) || !claimfolder.Named(path[1]) {
		return nil, fmt.Errorf("%q cannot be where a backup is", path)
	}
	f := &Folder{machine: path[0], name: path[1]}
	var err error
	if f.claim, err = claimfolder.Reopen(claim); err != nil {
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *Folder) open() error {
	if err := claimfolder.Make(f.claim, f.machine); err != nil {
		return err
	}
	var err error
	if f.parent, err = claimfolder.Enter(f.claim, f.machine); err != nil {
		return err
	}
	there, err := claimfolder.Exists(f.parent, f.name)
	if err != nil {
		return err
	}
	if there {
		return fmt.Errorf("%s/%s is on the claim already, and is not written over; move it away, or make the backup under another name", f.machine, f.name)
	}
	if err := f.removeStale(); err != nil {
		return err
	}
	if err := claimfolder.Make(f.parent, f.name+partial); err != nil {
		return err
	}
	f.content, err = claimfolder.Enter(f.parent, f.name+partial)
	return err
}

func (f *Folder) removeStale() error {
	entries, err := f.parent.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("looking for what earlier backups left: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() && stale(entry.Name()) {
			err = errors.Join(err, empty(f.parent, entry.Name()))
		}
	}
	return err
}

// stale says whether name is that of a folder which was never whole.
func stale(name string) bool {
	whole, unfinished := strings.CutSuffix(name, partial)
	if !unfinished || len(whole) <= len(stamp) {
		return false
	}
	_, err := time.Parse(stamp, whole[len(whole)-len(stamp):])
	return err == nil
}

// empty removes the folder called name with the files of a backup in it, and nothing else.
func empty(parent *os.File, name string) error {
	folder, err := claimfolder.Enter(parent, name)
	if err != nil {
		return err
	}
	entries, err := folder.ReadDir(-1)
	for _, entry := range entries {
		if entry.Type().IsRegular() && strings.HasSuffix(entry.Name(), suffix) {
			err = errors.Join(err, claimfolder.Remove(folder, entry.Name()))
		}
	}
	return errors.Join(err, folder.Close(), claimfolder.RemoveFolder(parent, name))
}

// File makes the file called name, open to be read and written; it is the folder's to close.
func (f *Folder) File(name string) (*os.File, error) {
	if !claimfolder.Named(name) || !strings.HasSuffix(name, suffix) {
		return nil, fmt.Errorf("%q cannot be the name of a disk's backup", name)
	}
	file, err := claimfolder.Create(f.content, name, unix.O_RDWR, 0o660)
	if err != nil {
		return nil, err
	}
	f.files = append(f.files, file)
	return file, nil
}

// Free is how many bytes there is room for.
func (f *Folder) Free() (int64, error) { return claimfolder.Free(f.content) }

// Keep gives the folder, which is whole, its name, once all of it is on its disk. Where that fails, nothing stays.
func (f *Folder) Keep() error {
	var err error
	for _, file := range f.files {
		err = errors.Join(err, file.Sync())
	}
	if err == nil {
		err = errors.Join(f.content.Sync(), claimfolder.Rename(f.parent, f.name+partial, f.name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keeping the backup %s/%s: %w", f.machine, f.name, err), f.Discard())
	}
	if err := errors.Join(f.parent.Sync(), f.claim.Sync()); err != nil {
		return errors.Join(fmt.Errorf("keeping the backup %s/%s: %w", f.machine, f.name, err), f.close())
	}
	return f.close()
}

// Discard removes what was written.
func (f *Folder) Discard() error {
	err := empty(f.parent, f.name+partial)
	_ = claimfolder.RemoveFolder(f.claim, f.machine) // which may have other backups in it
	if err != nil {
		err = fmt.Errorf("removing the half-made backup %s/%s: %w", f.machine, f.name, err)
	}
	return errors.Join(err, f.close())
}

func (f *Folder) close() error {
	var err error
	for _, file := range append(f.files, f.content, f.parent, f.claim) {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("closing the backup %s/%s: %w", f.machine, f.name, err)
	}
	return nil
}
