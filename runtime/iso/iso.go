// Package iso makes the small ISO 9660 images by which files reach a guest.
package iso

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

const (
	sector  = 2048    // the unit of ISO 9660, in bytes
	padding = 1 << 20 // images are a multiple of this, in bytes; what is added is sparse
)

// Write makes an image with label and files, by name, at path, where nothing may be yet.
// The folder of path also takes a temporary copy of the files.
func Write(path, label string, files map[string][]byte) (err error) {
	workspace, err := os.MkdirTemp(filepath.Dir(path), ".iso-")
	if err != nil {
		return fmt.Errorf("making a folder for %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(workspace)) }()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(workspace, name), content, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return pack(path, label, workspace)
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
