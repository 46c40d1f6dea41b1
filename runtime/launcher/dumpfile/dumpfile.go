// Package dumpfile makes files of guests' memory on claims that are mounted in other pods, of which
// only the folder is open. A file has its name only once it is whole and on its disk.
package dumpfile

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/launcher/claimfolder"
)

// partial is the end of the name of a file that is not whole.
const partial = ".partial"

// stamp is how long the end of a file's name is that tells of its time.
const stamp = len("-20060102-150405.memory.dump")

// File is one that is being written.
type File struct {
	folder *os.File
	name   string
	file   *os.File
}

// Create makes the file that is to be called name in folder, after removing what attempts with
// the same beginning of the name left there. Links in the folder are not followed.
func Create(folder *os.File, name string) (*File, error) {
	if strings.ContainsRune(name, '/') || len(name) <= stamp {
		return nil, fmt.Errorf("%q cannot be the name of a memory dump", name)
	}
	f := &File{name: name}
	var err error
	if f.folder, err = claimfolder.Reopen(folder); err != nil {
		return nil, err
	}
	if err := errors.Join(f.removeStale(), f.create()); err != nil {
		return nil, errors.Join(err, f.folder.Close())
	}
	return f, nil
}

func (f *File) removeStale() error {
	entries, err := f.folder.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("looking for earlier memory dumps: %w", err)
	}
	for _, entry := range entries {
		left := entry.Name()
		if strings.HasPrefix(left, f.name[:len(f.name)-stamp]+"-") && len(left) == len(f.name+partial) && strings.HasSuffix(left, partial) {
			err = errors.Join(err, f.remove(left))
		}
	}
	return err
}

func (f *File) create() error {
	file, err := claimfolder.Create(f.folder, f.name+partial, unix.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("beginning the memory dump %s: %w", f.name, err)
	}
	f.file = file
	return nil
}

// Open is the file, open for writing.
func (f *File) Open() *os.File { return f.file }

// Keep gives the file, which is whole, its name, once all of it is on its disk.
func (f *File) Keep() error {
	folder := int(f.folder.Fd())
	err := f.file.Sync()
	if err == nil {
		err = unix.Renameat(folder, f.name+partial, folder, f.name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keeping the memory dump %s: %w", f.name, err), f.Discard())
	}
	if err := f.folder.Sync(); err != nil {
		return errors.Join(fmt.Errorf("keeping the memory dump %s: %w", f.name, err), f.close())
	}
	return f.close()
}

// Discard removes what was written.
func (f *File) Discard() error {
	return errors.Join(f.remove(f.name+partial), f.close())
}

func (f *File) remove(name string) error {
	if err := claimfolder.Remove(f.folder, name); err != nil {
		return fmt.Errorf("removing a half-made memory dump: %w", err)
	}
	return nil
}

func (f *File) close() error {
	if err := errors.Join(f.file.Close(), f.folder.Close()); err != nil {
		return fmt.Errorf("closing the memory dump %s: %w", f.name, err)
	}
	return nil
}
