package reflink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/beneath"
)

// Result says what copying a tree did.
type Result struct {
	// Shared and Copied are the numbers of regular files copied by each method.
	Shared, Copied int
	// Bytes is what honest copies moved; shared blocks and holes do not count.
	Bytes int64
}

// Add counts one more file.
func (r *Result) Add(method Method) {
	if method == Shared {
		r.Shared++
		return
	}
	r.Copied++
}

// Tree copies everything below src into dst, an empty directory: regular files, directories, symbolic
// and hard links, device nodes, pipes; with owner, mode, times and extended attributes.
// Sockets are left out: they are nothing without the process that made them.
// It never leaves the two roots, whatever links the tree holds or gains meanwhile, and
// syncs what it wrote. src is not frozen: each file whose blocks are shared is as of its own moment. Where a file
// was copied byte for byte, which takes its time, nothing of src may have changed: else the error is ErrChanged.
func Tree(ctx context.Context, dst, src *os.Root, progress func(bytes int64)) (Result, error) {
	c := &treeCopy{dst: dst, src: src, progress: progress, linked: map[inode]string{}, moments: map[string]moment{}}
	if err := c.directory(ctx, "."); err != nil {
		return c.result, err
	}
	return c.result, c.unchanged()
}

// unchanged returns ErrChanged where what was copied byte for byte, or a directory, is not what it was.
func (c *treeCopy) unchanged() error {
	if c.result.Copied == 0 {
		return nil
	}
	for name, before := range c.moments {
		info, err := c.src.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copying %s: %w", name, ErrChanged)
		}
		if err != nil {
			return fmt.Errorf("looking at %s after its copy: %w", name, err)
		}
		if err := before.compare(name, info); err != nil {
			return err
		}
	}
	return nil
}

type inode struct{ device, number uint64 }

type treeCopy struct {
	dst, src *os.Root
	progress func(int64)
	result   Result
	linked   map[inode]string  // files with further links, and where each was copied to first
	moments  map[string]moment // directories, and files that were copied byte for byte
}

// directory fills the directory name of dst, which exists, from that of src.
func (c *treeCopy) directory(ctx context.Context, name string) error {
	dir, err := beneath.Open(c.src, name, os.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("opening directory %s: %w", name, err)
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return fmt.Errorf("reading directory %s: %w", name, err)
	}
	c.moments[name] = momentOf(info)
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("listing directory %s: %w", name, err)
	}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("copying %s: %w", name, err)
		}
		if err := c.entry(ctx, join(name, entry.Name())); err != nil {
			return err
		}
	}
	copied, err := c.dst.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("opening the copy of directory %s: %w", name, err)
	}
	defer copied.Close()
	if err := copyAttributes(copied, dir, info); err != nil {
		return fmt.Errorf("copying the attributes of %s: %w", name, err)
	}
	if err := copied.Sync(); err != nil {
		return fmt.Errorf("syncing the copy of %s: %w", name, err)
	}
	return nil
}

func (c *treeCopy) entry(ctx context.Context, name string) error {
	info, err := c.src.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	switch info.Mode().Type() {
	case 0:
		return c.file(ctx, name)
	case fs.ModeDir:
		if err := c.dst.Mkdir(name, 0o700); err != nil {
			return fmt.Errorf("making directory %s: %w", name, err)
		}
		return c.directory(ctx, name)
	case fs.ModeSymlink:
		return c.symlink(name, info)
	case fs.ModeSocket:
		return nil
	default:
		return c.node(name, info)
	}
}

func (c *treeCopy) file(ctx context.Context, name string) error {
	src, err := beneath.Open(c.src, name, os.O_RDONLY|unix.O_NONBLOCK)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return nil // removed meanwhile, or replaced by a link
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", name, err)
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil // replaced meanwhile
	}
	if done, err := c.hardLink(name, src); done || err != nil {
		return err
	}
	dst, err := c.dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("making %s: %w", name, err)
	}
	defer dst.Close()
	method, of, err := file(ctx, dst, src, func(n int64) {
		c.result.Bytes += n
		if c.progress != nil {
			c.progress(n)
		}
	})
	if err != nil {
		return err
	}
	c.result.Add(method)
	if method == Copied {
		c.moments[name] = of
	}
	if err := copyAttributes(dst, src, info); err != nil {
		return fmt.Errorf("copying the attributes of %s: %w", name, err)
	}
	if err := dst.Sync(); err != nil {
		return fmt.Errorf("syncing the copy of %s: %w", name, err)
	}
	return nil
}

// hardLink links name to the copy of an earlier name of the same file, if there is one.
func (c *treeCopy) hardLink(name string, src *os.File) (bool, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &stat); err != nil {
		return false, fmt.Errorf("reading %s: %w", name, err)
	}
	if stat.Nlink < 2 {
		return false, nil
	}
	key := inode{stat.Dev, stat.Ino}
	first, ok := c.linked[key]
	if !ok {
		c.linked[key] = name
		return false, nil
	}
	if err := c.dst.Link(first, name); err != nil {
		return false, fmt.Errorf("linking %s: %w", name, err)
	}
	return true, nil
}

func (c *treeCopy) symlink(name string, info fs.FileInfo) error {
	target, err := c.src.Readlink(name)
	if err != nil {
		return fmt.Errorf("reading link %s: %w", name, err)
	}
	if err := c.dst.Symlink(target, name); err != nil {
		return fmt.Errorf("making link %s: %w", name, err)
	}
	owner := ownerOf(info)
	if err := c.dst.Lchown(name, owner.uid, owner.gid); err != nil {
		return fmt.Errorf("owning link %s: %w", name, err)
	}
	return nil
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}
