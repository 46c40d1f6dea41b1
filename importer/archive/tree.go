// Package archive unpacks tar archives into a directory. An archive is not trusted: no name
// and no link of it leads out of the directory, it makes no devices, and it gives nobody
// ownership. Its files stand under a name of their own until all of them are there.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// Staging is the directory, inside of the one that is filled, in which files wait for the last of them.
const Staging = ".slipway-unpacking"

// batch is how many names are moved at a time.
const batch = 1024

// Tree is a directory that is being filled. Commit gives its files their place, Abort leaves none.
type Tree struct {
	dir          string
	root, staged *os.Root
	closed       map[string]fs.FileMode // permissions of directories that their owner may not change, once all is there

	kept          int // bytes of the names in closed
	entries       int
	size, written int64
}

// Begin makes room in the directory dir; what an earlier attempt left is removed.
func Begin(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, failed(err, "opening %s", dir)
	}
	t := &Tree{dir: dir, root: root, closed: map[string]fs.FileMode{}}
	if err := t.stage(); err != nil {
		return nil, errors.Join(failed(err, "making room in %s", dir), root.Close())
	}
	return t, nil
}

func (t *Tree) stage() (err error) {
	if err := t.root.RemoveAll(Staging); err != nil {
		return fmt.Errorf("removing what is left of an earlier attempt: %w", err)
	}
	if err := t.root.Mkdir(Staging, 0o700); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	if t.staged, err = t.root.OpenRoot(Staging); err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	return nil
}

// Size is how many bytes the files have, Written how many of them are not holes.
func (t *Tree) Size() int64 { return t.size }

// Written is how many bytes were written.
func (t *Tree) Written() int64 { return t.written }

// Commit moves the files to their place and makes them safe. What stands there under another
// name stays.
func (t *Tree) Commit(ctx context.Context) error {
	if err := t.staged.Close(); err != nil {
		return failed(err, "closing %s", t.dir)
	}
	t.staged = nil
	if err := t.move(ctx, "."); err != nil {
		return err
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(t.closed))) { // inner ones first
		if err := t.root.Chmod(name, t.closed[name]); err != nil {
			return failed(err, "setting the permissions of %q", name)
		}
	}
	if err := t.root.Remove(Staging); err != nil {
		return failed(err, "cleaning up in %s", t.dir)
	}
	if err := syncFileSystem(t.dir); err != nil {
		return failed(err, "making %s safe", t.dir)
	}
	if err := t.root.Close(); err != nil {
		return failed(err, "closing %s", t.dir)
	}
	return nil
}

// Abort removes what has not got its place.
func (t *Tree) Abort() error {
	var err error
	if t.staged != nil {
		err = t.staged.Close()
	}
	if err = errors.Join(err, t.root.RemoveAll(Staging), t.root.Close()); err != nil {
		return failed(err, "removing what was unpacked in %s", t.dir)
	}
	return nil
}

// move gives what is staged in dir its place, directory by directory where one is there already.
func (t *Tree) move(ctx context.Context, dir string) error {
	for {
		entries, err := t.list(path.Join(Staging, dir))
		if err != nil {
			return err
		}
		for _, entry := range entries { // each is gone then, so that this ends
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("stopping: %w", err)
			}
			if err := t.place(ctx, path.Join(dir, entry.Name()), entry.IsDir()); err != nil {
				return err
			}
		}
		if len(entries) == 0 {
			return nil
		}
	}
}

// place moves one staged file or directory to name, over what an earlier attempt has put there.
func (t *Tree) place(ctx context.Context, name string, isDir bool) error {
	from := path.Join(Staging, name)
	there, err := t.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return failed(err, "looking at %q", name)
	case there.IsDir() && isDir:
		return t.merge(ctx, from, name, there.Mode())
	case there.IsDir() || isDir: // a rename goes over files only
		if err := t.root.RemoveAll(name); err != nil {
			return failed(err, "replacing %q", name)
		}
	}
	if err := t.root.Rename(from, name); err != nil {
		return failed(err, "placing %q", name)
	}
	return nil
}

// merge moves what is in the staged directory from into name, which is there.
func (t *Tree) merge(ctx context.Context, from, name string, mode fs.FileMode) error {
	if mode&0o300 != 0o300 { // by an earlier attempt; it is among the closed ones again
		if err := t.root.Chmod(name, mode.Perm()|0o700); err != nil {
			return failed(err, "opening directory %q", name)
		}
	}
	if err := t.move(ctx, name); err != nil {
		return err
	}
	if err := t.root.Remove(from); err != nil {
		return failed(err, "cleaning up in %s", t.dir)
	}
	return nil
}

// list returns some entries of a directory, none when it is empty.
func (t *Tree) list(name string) ([]fs.DirEntry, error) {
	dir, err := t.root.Open(name)
	if err != nil {
		return nil, failed(err, "opening %q", name)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(batch)
	if len(entries) > 0 || err == nil || errors.Is(err, io.EOF) {
		return entries, nil
	}
	return nil, failed(err, "listing %q", name)
}

func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("opening the directory: %w", err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("syncing its file system: %w", err)
	}
	return nil
}

// failed gives err, of the volume, the reason that it stands for.
func failed(err error, format string, args ...any) error {
	doing := fmt.Sprintf(format, args...)
	if errno, _ := errors.AsType[unix.Errno](err); errno == unix.ENOSPC || errno == unix.EDQUOT || errno == unix.EFBIG {
		return transfer.Errorf(transfer.NoSpace, "%s: %w; free space on the volume's storage or take another storage class", doing, err)
	}
	return transfer.Errorf(transfer.TargetFailed, "%s: %w", doing, err)
}

// unfit gives err, of what an archive asks for, the reason that it stands for: the archive's own
// fault, or the volume's. What no operating system says, os.Root does: a name leads out of it.
func unfit(err error, format string, args ...any) error {
	errno, ok := errors.AsType[unix.Errno](err)
	if ok && !slices.Contains(faults, errno) {
		return failed(err, format, args...)
	}
	return transfer.Errorf(transfer.InvalidImage, "%s: %w; make the archive anew without it", fmt.Sprintf(format, args...), err)
}

// faults are the errors of names that no volume takes.
var faults = []unix.Errno{
	unix.ENAMETOOLONG, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.ENOENT, unix.EEXIST, unix.EMLINK, unix.EINVAL, unix.EPERM,
}
