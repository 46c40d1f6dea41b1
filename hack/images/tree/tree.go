// Package tree writes folders as tar streams that depend only on their content: sorted, with fixed times and no names of this machine.
package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Entry is one file, folder or link that is added to a tree, or stands in the place of one of its files.
type Entry struct {
	// Path is the name in the tree, without a leading slash.
	Path string
	// Mode holds the type (fs.ModeDir, fs.ModeSymlink) and the permission bits.
	Mode fs.FileMode
	// UID and GID own it.
	UID, GID int
	// Data is a file's content, or a link's target.
	Data string
	// File, when set, is the file of this machine that holds the content.
	File string
}

// Tree is a folder of this machine seen as a root file system.
type Tree struct {
	// Root is the folder; empty for a tree of only Extra.
	Root string
	// Skip leaves out a path (no leading slash); a skipped folder is left out with all that is in it.
	Skip func(path string, dir bool) bool
	// Extra entries are added; they win over files of Root, and folders above them are made.
	Extra []Entry
	// Time is every entry's time.
	Time time.Time
}

// WriteTar writes the whole tree, folders before their content, in the order of names.
func (t Tree) WriteTar(w io.Writer) error {
	entries, err := t.entries()
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	links := map[inode]string{}
	for _, e := range entries {
		if err := t.writeEntry(tw, e, links); err != nil {
			return fmt.Errorf("packing %s: %w", e.Path, err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("ending the tar stream: %w", err)
	}
	return nil
}

// entries lists the tree sorted by path; files of Root are entries whose File is set.
func (t Tree) entries() ([]Entry, error) {
	byPath := map[string]Entry{}
	if t.Root != "" {
		if err := t.walk(byPath); err != nil {
			return nil, err
		}
	}
	for _, e := range t.Extra {
		e.Path = strings.TrimPrefix(path.Clean("/"+e.Path), "/")
		for dir := path.Dir(e.Path); dir != "."; dir = path.Dir(dir) {
			if _, ok := byPath[dir]; !ok {
				byPath[dir] = Entry{Path: dir, Mode: fs.ModeDir | 0o755}
			}
		}
		byPath[e.Path] = e
	}
	entries := make([]Entry, 0, len(byPath))
	for _, e := range byPath {
		entries = append(entries, e)
	}
	// By components, so that a folder stands directly before its content.
	key := func(i int) string { return strings.ReplaceAll(entries[i].Path, "/", "\x00") }
	sort.Slice(entries, func(i, j int) bool { return key(i) < key(j) })
	return entries, nil
}

func (t Tree) walk(byPath map[string]Entry) error {
	err := filepath.WalkDir(t.Root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(t.Root, file)
		if err != nil {
			return fmt.Errorf("naming %s: %w", file, err)
		}
		if name == "." {
			return nil
		}
		if t.Skip != nil && t.Skip(name, d.IsDir()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		if info.Mode()&(fs.ModeSocket|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
			return nil
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("no owner known for %s", file)
		}
		byPath[name] = Entry{Path: name, Mode: info.Mode(), UID: int(st.Uid), GID: int(st.Gid), File: file}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", t.Root, err)
	}
	return nil
}

type inode struct{ dev, ino uint64 }

func (t Tree) writeEntry(tw *tar.Writer, e Entry, links map[inode]string) error {
	h := &tar.Header{Name: e.Path, Uid: e.UID, Gid: e.GID, ModTime: t.Time.UTC().Truncate(time.Second), Mode: unixMode(e.Mode)}
	switch {
	case e.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
		return write(tw, h, nil)
	case e.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Data
		if e.File != "" {
			target, err := os.Readlink(e.File)
			if err != nil {
				return fmt.Errorf("reading the link: %w", err)
			}
			h.Linkname = target
		}
		return write(tw, h, nil)
	case e.File == "":
		h.Typeflag, h.Size = tar.TypeReg, int64(len(e.Data))
		return write(tw, h, strings.NewReader(e.Data))
	}
	return t.writeFile(tw, h, e.File, links)
}

func (t Tree) writeFile(tw *tar.Writer, h *tar.Header, file string, links map[inode]string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 && strings.HasPrefix(file, t.Root) && t.Root != "" {
		id := inode{uint64(st.Dev), st.Ino} //nolint:unconvert // other systems have it in 32 bits
		if first, seen := links[id]; seen {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return write(tw, h, nil)
		}
		links[id] = h.Name
	}
	if caps := capabilities(file); caps != "" {
		h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": caps}
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	return write(tw, h, f)
}

func write(tw *tar.Writer, h *tar.Header, content io.Reader) error {
	if err := tw.WriteHeader(h); err != nil {
		return fmt.Errorf("writing the header: %w", err)
	}
	if content == nil {
		return nil
	}
	if _, err := io.Copy(tw, content); err != nil {
		return fmt.Errorf("writing the content: %w", err)
	}
	return nil
}

func capabilities(file string) string {
	buf := make([]byte, 64)
	n, err := unix.Lgetxattr(file, "security.capability", buf)
	if err != nil && !errors.Is(err, unix.ENODATA) || n <= 0 {
		return ""
	}
	return string(buf[:n])
}

func unixMode(m fs.FileMode) int64 {
	mode := int64(m.Perm())
	for bit, value := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			mode |= value
		}
	}
	return mode
}
