// Package imagefile finds the disk in the files of a container image, wherever they are mounted.
package imagefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// diskDir is where an image's disk is unless a path is given.
const diskDir = "disk"

// Open opens the disk image below root: path, or else the only regular file of
// /disk. No symbolic link is followed out of root.
func Open(root, path string) (*os.File, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("opening the image's root: %w", err)
	}
	defer func() { _ = dir.Close() }()
	name := strings.TrimPrefix(path, "/")
	if name == "" {
		if name, err = onlyFile(dir); err != nil {
			return nil, err
		}
	}
	// O_NONBLOCK: a pipe of that name must not hold the pod up.
	file, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the container image has no file /%s; correct the volume's path, or leave it out and put the disk under /disk", name)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("/%s of the container image cannot be read by uid %d; give it owner 107 or mode 0444", name, os.Getuid())
	case err != nil:
		return nil, fmt.Errorf("opening /%s of the container image: %w", name, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("/%s of the container image is no regular file (%s); put a qcow2 or raw disk image there", name, info.Mode())
	}
	if err == nil && info.Size() == 0 {
		err = fmt.Errorf("/%s of the container image is empty; put a qcow2 or raw disk image there", name)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// onlyFile finds the one regular file of /disk.
func onlyFile(root *os.Root) (string, error) {
	entries, err := fs.ReadDir(root.FS(), diskDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading /%s of the container image: %w", diskDir, err)
	}
	var found []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && !strings.HasPrefix(entry.Name(), ".") {
			found = append(found, entry.Name())
		}
	}
	switch len(found) {
	case 0:
		return "", errors.New("the container image has no file under /disk; a containerDisk holds one qcow2 or raw disk image there (FROM scratch, ADD --chown=107:107 disk.qcow2 /disk/)")
	case 1:
		return diskDir + "/" + found[0], nil
	default:
		return "", fmt.Errorf("the container image has several files under /disk (%s); name one by the volume's containerDisk.path", strings.Join(found, ", "))
	}
}
