// Package cpio writes initramfs archives (cpio "newc") whose bytes depend only on what is put in: numbered inodes, no times.
package cpio

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

type writer struct {
	w     io.Writer
	inode int
	n     int64
}

func (c *writer) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	if err != nil {
		return n, fmt.Errorf("writing the initramfs: %w", err)
	}
	return n, nil
}

const (
	modeDir     = 0o040000
	modeRegular = 0o100000
	modeSymlink = 0o120000
	modeChar    = 0o020000
)

// entry writes one file of the given unix mode; major and minor are those of a device.
func (c *writer) entry(name string, mode uint32, data string, major, minor int) error {
	c.inode++
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c.inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	if _, err := io.WriteString(c, header+name+"\x00"); err != nil {
		return err
	}
	if err := c.pad(); err != nil {
		return err
	}
	if _, err := io.WriteString(c, data); err != nil {
		return err
	}
	return c.pad()
}

func (c *writer) pad() error {
	if rest := c.n % 4; rest != 0 {
		_, err := c.Write(make([]byte, 4-rest))
		return err
	}
	return nil
}

func (c *writer) close() error {
	c.inode = -1
	return c.entry("TRAILER!!!", 0, "", 0, 0)
}

// Write packs the folder root, sorted by name and all owned by root, with the console device the kernel wants before /dev is mounted.
func Write(w io.Writer, root string) error {
	c := &writer{w: w}
	var names []string
	err := filepath.WalkDir(root, func(file string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, err := filepath.Rel(root, file); err == nil && name != "." {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", root, err)
	}
	sort.Slice(names, func(i, j int) bool {
		return strings.ReplaceAll(names[i], "/", "\x00") < strings.ReplaceAll(names[j], "/", "\x00")
	})
	for _, name := range names {
		if err := c.file(root, name); err != nil {
			return err
		}
	}
	if err := c.entry("dev/console", modeChar|0o600, "", 5, 1); err != nil {
		return err
	}
	return c.close()
}

func (c *writer) file(root, name string) error {
	file := filepath.Join(root, name)
	info, err := os.Lstat(file)
	if err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	switch {
	case info.IsDir():
		return c.entry(name, modeDir|0o755, "", 0, 0)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(file)
		if err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
		return c.entry(name, modeSymlink|0o777, target, 0, 0)
	default:
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
		return c.entry(name, modeRegular|uint32(info.Mode().Perm()), string(data), 0, 0)
	}
}
