// Package dumpfile makes files of guests' memory on claims that are mounted in other pods, of which
// only the folder is open. A file has its name only once it is whole and on its disk.
package dumpfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
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
	if f.folder, err = reopen(folder); err != nil {
		return nil, err
	}
	if err := errors.Join(f.removeStale(), f.create()); err != nil {
		return nil, errors.Join(err, f.folder.Close())
	}
	return f, nil
}

// reopen opens the folder anew, for what came may be open only to look things up in.
func reopen(folder *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(folder.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the folder of the claim: %w", err)
	}
	return os.NewFile(uintptr(fd), folder.Name()), nil
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
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(f.folder.Fd()), f.name+partial, flags, 0o600)
	if err != nil {
		return fmt.Errorf("making the file %s on the claim: %w", f.name+partial, err)
	}
	f.file = os.NewFile(uintptr(fd), f.name)
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
	if err := unix.Unlinkat(int(f.folder.Fd()), name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the half-made memory dump %s: %w", name, err)
	}
	return nil
}

func (f *File) close() error {
	if err := errors.Join(f.file.Close(), f.folder.Close()); err != nil {
		return fmt.Errorf("closing the memory dump %s: %w", f.name, err)
	}
	return nil
}
