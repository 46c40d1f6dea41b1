package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// Bounds of an archive.
const (
	maxName   = unix.PathMax - 1
	maxClosed = 16 << 20 // bytes of names of directories whose permissions are kept in memory
	piece     = 1 << 20  // what is read and written at a time
	grain     = 64 << 10
)

// Add unpacks the archive in stream, whose files may have room bytes in all.
func (t *Tree) Add(ctx context.Context, stream io.Reader, room int64) error {
	reader := tar.NewReader(stream)
	buffer := make([]byte, piece)
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopping: %w", err)
		}
		header, err := reader.Next()
		if err == io.EOF { //nolint:errorlint // only io.EOF itself is the archive's end
			break
		}
		if err != nil {
			return t.unreadable(err)
		}
		t.entries++
		if t.size += header.Size; header.Size < 0 || t.size > room || t.size < 0 {
			return transfer.Errorf(transfer.TooSmall, "with %q the archive's files have more than the volume's %d bytes; ask for a larger volume", header.Name, room)
		}
		if err := t.add(ctx, header, reader, buffer); err != nil {
			return err
		}
	}
	if t.entries == 0 {
		return transfer.Errorf(transfer.InvalidImage, "the archive is empty; check the URL")
	}
	return nil
}

// unreadable is the error of an archive that cannot be read on.
func (t *Tree) unreadable(err error) error {
	if _, ok := errors.AsType[*transfer.Error](err); ok {
		return fmt.Errorf("reading the archive: %w", err)
	}
	switch {
	case t.entries == 0:
		return transfer.Errorf(transfer.WrongFormat, "the file is no tar archive, alone or packed with gzip, xz, zstd or bzip2; publish it as one, or set contentType kubevirt for a disk image")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return transfer.Errorf(transfer.InvalidImage, "the archive ends too early, after %d entries; publish it anew", t.entries)
	}
	return transfer.Errorf(transfer.InvalidImage, "the archive cannot be read behind its entry %d: %w; publish it anew", t.entries, err)
}

// add makes one entry.
func (t *Tree) add(ctx context.Context, header *tar.Header, content io.Reader, buffer []byte) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil // says nothing of a file
	}
	name, err := localName(header.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return nil // the directory itself is the volume's
	}
	if err := t.clearWay(name, header.Typeflag == tar.TypeDir); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return t.addDirectory(name, header.FileInfo().Mode().Perm())
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return t.addFile(ctx, name, header, content, buffer)
	case tar.TypeSymlink:
		err = t.staged.Symlink(header.Linkname, name) // a text; nothing here goes where it leads
	case tar.TypeLink:
		var old string
		if old, err = localName(header.Linkname); err != nil {
			return err
		}
		err = t.staged.Link(old, name)
	default:
		return transfer.Errorf(transfer.InvalidImage, "%q in the archive is no file, directory or link but of type %q, a device perhaps; make the archive anew without it", name, header.Typeflag)
	}
	if err != nil {
		return unfit(err, "making the link %q of the archive", name)
	}
	return nil
}

// localName is an entry's name below the directory. As with tar(1) a slash at its beginning means nothing.
func localName(name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", transfer.Errorf(transfer.InvalidImage, "%q in the archive leads out of its directory; make the archive anew without it", name)
		}
	}
	clean := path.Clean(strings.TrimLeft(name, "/"))
	first, _, _ := strings.Cut(clean, "/")
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return "", transfer.Errorf(transfer.InvalidImage, "an entry of the archive has no name; publish it anew")
	case first == Staging:
		return "", transfer.Errorf(transfer.InvalidImage, "the name %s in the archive is one that unpacking needs itself; make the archive anew without it", Staging)
	case len(clean) > maxName:
		return "", transfer.Errorf(transfer.InvalidImage, "a name in the archive has %d bytes, more than any file's path may have; it begins with %q", len(clean), clean[:60])
	}
	return clean, nil
}

// clearWay makes the directories above name, and removes what an earlier entry has put there;
// a directory stays for a directory.
func (t *Tree) clearWay(name string, isDir bool) error {
	if above := path.Dir(name); above != "." {
		if err := t.staged.MkdirAll(above, 0o755); err != nil {
			return unfit(err, "making the directory of %q in the archive", name)
		}
	}
	there, err := t.staged.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unfit(err, "looking at %q", name)
	case there.IsDir() && isDir:
		return nil
	}
	if err := t.staged.RemoveAll(name); err != nil {
		return failed(err, "replacing %q", name)
	}
	maps.DeleteFunc(t.closed, func(other string, _ fs.FileMode) bool {
		gone := other == name || strings.HasPrefix(other, name+"/")
		if gone {
			t.kept -= len(other)
		}
		return gone
	})
	return nil
}

// addDirectory makes a directory that can be filled; what its permissions forbid comes in the end.
func (t *Tree) addDirectory(name string, mode fs.FileMode) error {
	if err := t.staged.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return unfit(err, "making the directory %q of the archive", name)
	}
	if err := t.staged.Chmod(name, mode|0o700); err != nil {
		return failed(err, "setting the permissions of %q", name)
	}
	if _, had := t.closed[name]; had {
		delete(t.closed, name)
		t.kept -= len(name)
	}
	if mode&0o700 == 0o700 {
		return nil
	}
	if t.kept += len(name); t.kept > maxClosed {
		return transfer.Errorf(transfer.InvalidImage, "the archive has too many directories that their owner may not read, write or enter, with names of more than %d bytes in all; make it anew with chmod u+rwx", maxClosed)
	}
	t.closed[name] = mode
	return nil
}

func (t *Tree) addFile(ctx context.Context, name string, header *tar.Header, content io.Reader, buffer []byte) error {
	file, err := t.staged.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return unfit(err, "making the file %q of the archive", name)
	}
	err = t.fill(ctx, file, content, buffer)
	if err == nil {
		err = finish(file, header)
	}
	if closing := file.Close(); err == nil && closing != nil {
		err = failed(closing, "writing the file %q of the archive", name)
	}
	if err != nil {
		return err
	}
	if err := t.staged.Chtimes(name, time.Time{}, header.ModTime); err != nil {
		return unfit(err, "setting the time of %q", name)
	}
	return nil
}

// finish gives a file its size, for it may end with a hole, and its permissions; not those that
// would lend the owner's rights, who is another one here.
func finish(file *os.File, header *tar.Header) error {
	if err := file.Truncate(header.Size); err != nil {
		return failed(err, "making the file %q of the archive %d bytes large", header.Name, header.Size)
	}
	if err := file.Chmod(header.FileInfo().Mode().Perm()); err != nil {
		return failed(err, "setting the permissions of %q", header.Name)
	}
	return nil
}

// fill writes content, and leaves holes where it is zero.
func (t *Tree) fill(ctx context.Context, file *os.File, content io.Reader, buffer []byte) error {
	for off := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopping: %w", err)
		}
		n, err := read(content, buffer)
		if writing := t.put(file, buffer[:n], off); writing != nil {
			return failed(writing, "writing the file %q of the archive", file.Name())
		}
		off += int64(n)
		if err == io.EOF { //nolint:errorlint // only io.EOF itself is the file's end
			return nil
		}
		if err != nil {
			return t.unreadable(err)
		}
	}
}

// read fills buffer as far as content goes.
func read(content io.Reader, buffer []byte) (n int, err error) {
	for n < len(buffer) && err == nil {
		var got int
		got, err = content.Read(buffer[n:])
		n += got
	}
	return n, err //nolint:wrapcheck // io.Reader's contract: io.EOF as it is
}

// put writes the grains of data that are not zero at off.
func (t *Tree) put(file *os.File, data []byte, off int64) error {
	for len(data) > 0 {
		end := 0
		for end < len(data) && !digest.IsZero(data[end:min(end+grain, len(data))]) {
			end = min(end+grain, len(data))
		}
		if end > 0 {
			if _, err := file.WriteAt(data[:end], off); err != nil {
				return fmt.Errorf("at byte %d: %w", off, err)
			}
			t.written += int64(end)
		} else {
			end = min(grain, len(data)) // a hole
		}
		data, off = data[end:], off+int64(end)
	}
	return nil
}
