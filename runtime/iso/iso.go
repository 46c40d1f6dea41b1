// Package iso makes the small ISO 9660 images by which files reach a guest.
package iso

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

const (
	sector  = 2048    // the unit of ISO 9660, in bytes
	padding = 1 << 20 // images are a multiple of this, in bytes; what is added is sparse
)

// MaxLabel is how long a volume label may be, in bytes.
const MaxLabel = 32

// File is a file of an image.
type File struct {
	Data []byte
	// Mode are the permissions that Linux guests see.
	Mode fs.FileMode
}

// Private are files that only a guest's root may read.
func Private(contents map[string][]byte) map[string]File {
	files := make(map[string]File, len(contents))
	for name, data := range contents {
		files[name] = File{Data: data, Mode: 0o600}
	}
	return files
}

// Write makes an image with label and files, by their paths in it, at path, where nothing
// may be yet. The folder of path also takes a temporary copy of the files.
func Write(path, label string, files map[string]File) (err error) {
	workspace, err := os.MkdirTemp(filepath.Dir(path), ".iso-")
	if err != nil {
		return fmt.Errorf("making a folder for %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(workspace)) }()
	if err := fill(workspace, files); err != nil {
		return err
	}
	return pack(path, label, workspace)
}

// fill writes files below dir. Modes are set afterwards, past the process's own mask.
func fill(dir string, files map[string]File) (err error) {
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("opening the folder of an image: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening the folder of an image: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for name, file := range files {
		if err := makeFolders(root, filepath.Dir(name)); err != nil {
			return err
		}
		if err := errors.Join(root.WriteFile(name, file.Data, 0o600), root.Chmod(name, file.Mode)); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// makeFolders makes folder and those above it.
func makeFolders(root *os.Root, folder string) error {
	if err := root.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making folder %s: %w", folder, err)
	}
	for ; folder != "."; folder = filepath.Dir(folder) {
		if err := root.Chmod(folder, 0o755); err != nil {
			return fmt.Errorf("opening folder %s: %w", folder, err)
		}
	}
	return nil
}

// pack writes the files of workspace into a new image at path. Their names do not
// fit plain ISO 9660: Linux reads them by Rock Ridge, Windows and others by Joliet.
func pack(path, label, workspace string) (err error) {
	image, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o660)
	if err != nil {
		return fmt.Errorf("creating image: %w", err)
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	iso, err := iso9660.Create(file.New(image, false), 0, 0, sector, workspace)
	if err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	if err := iso.Finalize(iso9660.FinalizeOptions{RockRidge: true, Joliet: true, VolumeIdentifier: label}); err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	if err := joinJoliet(image); err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	info, err := image.Stat()
	if err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	// The image ends with its last file's last byte. Guests read whole sectors, and some
	// look for other file systems further on before they take it for what it is.
	if err := image.Truncate((info.Size() + padding - 1) / padding * padding); err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	return nil
}
