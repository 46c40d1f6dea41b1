package exportserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
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

// list is what the folder called name has below root, in the order of names.
func list(root *os.Root, name string) ([]fs.DirEntry, error) {
	folder, _, err := open(root, name)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("reading folder %s: %w", name, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// walk visits all that is below folder, in the order of names, whatever bytes those are; but not what a file system has made for itself.
func walk(root *os.Root, folder string, visit func(name string, kind fs.FileMode) error) error {
	entries, err := list(root, folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := path.Join(folder, entry.Name())
		if name == lostAndFound {
			continue
		}
		if err := visit(name, entry.Type()); err != nil {
			return err
		}
		if !entry.IsDir() {
			continue
		}
		if err := walk(root, name, visit); err != nil {
			return err
		}
	}
	return nil
}
