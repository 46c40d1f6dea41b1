package exportserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// errNoPlainFile says that something is neither a regular file nor a folder.
var errNoPlainFile = errors.New("it is neither a file nor a folder")

// open opens name below root. Nothing on the way there may be a symbolic link, and what is there must be a
// regular file or a folder: opening a pipe would wait for somebody who writes.
func open(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		info, err := root.Lstat(at)
		if err != nil {
			return nil, nil, fmt.Errorf("looking for %s: %w", name, err)
		}
		if !info.Mode().IsRegular() && !info.IsDir() {
			return nil, nil, fmt.Errorf("%s: %w", at, errNoPlainFile)
		}
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening %s: %w", name, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() { // it was exchanged meanwhile
		err = errNoPlainFile
	}
	if err != nil {
		_ = file.Close() // nothing was read
		return nil, nil, fmt.Errorf("opening %s: %w", name, err)
	}
	return file, info, nil
}

// tree is a folder as a file system of regular files and folders alone.
type tree struct{ root *os.Root }

// Open opens a file or folder. What may not be opened is not there.
func (t tree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, info, err := open(t.root, name)
	if errors.Is(err, errNoPlainFile) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if info.IsDir() {
		return plainFolder{file}, nil
	}
	return file, nil
}

// plainFolder lists files and folders alone.
type plainFolder struct{ *os.File }

// ReadDir is as of fs.ReadDirFile.
func (f plainFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	entries, err := f.File.ReadDir(n)
	var plain []fs.DirEntry
	for _, entry := range entries {
		if entry.Type().IsRegular() || entry.IsDir() {
			plain = append(plain, entry)
		}
	}
	return plain, err //nolint:wrapcheck // fs.ReadDirFile's contract
}
