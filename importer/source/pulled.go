package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/beneath"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// PulledOptions describe a container image that the node has pulled, and whose files are there.
type PulledOptions struct {
	// URL is the image's address, for messages.
	URL string
	// Root is the folder that holds the image's files: "/" for a program that runs in the image.
	Root string
	// Environment has the image's variables, as NAME=value; others do no harm.
	Environment []string
}

// Pulled is the disk of a container image that the node has pulled: the only file below /disk. It may be read by
// several goroutines.
type Pulled struct {
	options PulledOptions
	path    string
	file    *os.File
	size    int64
	counter counter
}

// OpenPulled opens the image's disk. No link is followed: what it leads to need not be the image's.
func OpenPulled(options PulledOptions) (*Pulled, error) {
	root, err := os.OpenRoot(options.Root)
	if err != nil {
		return nil, transfer.Errorf(transfer.SourceFailed, "opening the files of %s: %w", options.URL, err)
	}
	defer root.Close()
	p := &Pulled{options: options}
	if p.path, err = p.find(root); err != nil {
		return nil, err
	}
	// O_NONBLOCK: a pipe that takes the file's name must not hold the import up.
	p.file, err = beneath.Open(root, p.path, os.O_RDONLY|unix.O_NONBLOCK)
	if errors.Is(err, fs.ErrPermission) {
		return nil, transfer.Errorf(transfer.WrongFormat, "/%s of %s cannot be read by uid %d; give it owner 107 or mode 0444", p.path, p.Name(), os.Getuid())
	}
	if err != nil {
		return nil, transfer.Errorf(transfer.SourceFailed, "opening /%s of %s: %w", p.path, p.Name(), err)
	}
	info, err := p.file.Stat()
	switch {
	case err != nil:
		err = transfer.Errorf(transfer.SourceFailed, "opening /%s of %s: %w", p.path, p.Name(), err)
	case !info.Mode().IsRegular():
		err = transfer.Errorf(transfer.WrongFormat, "/%s of %s is a link or a device; put the disk itself there", p.path, p.Name())
	case info.Size() == 0:
		err = transfer.Errorf(transfer.WrongFormat, "/%s of %s is empty; put a disk image there", p.path, p.Name())
	}
	if err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	p.size = info.Size()
	return p, nil
}

// find returns the path of the only file below /disk.
func (p *Pulled) find(root *os.Root) (string, error) {
	var found, other []string
	info, err := root.Lstat(diskDir)
	if err == nil && info.IsDir() {
		err = fs.WalkDir(root.FS(), diskDir, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() || strings.HasPrefix(path.Base(name), "."):
			case entry.Type().IsRegular():
				found = append(found, name)
			default:
				other = append(other, name)
			}
			return nil
		})
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", transfer.Errorf(transfer.WrongFormat, "/%s of %s cannot be read by uid %d; give it owner 107 or mode 0555", diskDir, p.Name(), os.Getuid())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", transfer.Errorf(transfer.SourceFailed, "looking into /%s of %s: %w", diskDir, p.Name(), err)
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", transfer.Errorf(transfer.WrongFormat, "%s holds several files below /disk (%s); keep one of them", p.Name(), strings.Join(found[:min(len(found), 3)], ", "))
	case len(other) > 0:
		return "", transfer.Errorf(transfer.WrongFormat, "/%s of %s is a link or a device; put the disk itself there", other[0], p.Name())
	}
	return "", transfer.Errorf(transfer.WrongFormat, "%s holds no file below /disk; it is no disk for virtual machines: check the URL", p.Name())
}

// Name is the image's address, for messages.
func (p *Pulled) Name() string { return p.options.URL }

// Size is the file's size in bytes.
func (p *Pulled) Size() int64 { return p.size }

// Downloaded is how many bytes of the file were read so far: nothing else is known of how the node got them.
func (p *Pulled) Downloaded() int64 { return p.counter.Load() }

// Labels are those that the image asks for its disk's claim, as its environment says.
func (p *Pulled) Labels() map[string]string { return labelsOf(p.options.Environment) }

// ReadAt reads len(b) bytes at off. It returns io.EOF at the file's end.
func (p *Pulled) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.file.ReadAt(b, off)
	p.counter.Add(int64(n))
	if err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the file's end
		return n, transfer.Errorf(transfer.SourceFailed, "reading /%s of %s: %w", p.path, p.Name(), err)
	}
	return n, err //nolint:wrapcheck // io.ReaderAt's contract: io.EOF as it is
}

// Stream reads the file once, in order, from its first byte.
func (p *Pulled) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(p, 0, p.size)), nil
}

// Close ends the use of the file.
func (p *Pulled) Close() error {
	if err := p.file.Close(); err != nil {
		return fmt.Errorf("closing /%s of %s: %w", p.path, p.Name(), err)
	}
	return nil
}
