package disks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/domain"
)

// hostDisk finds the file of the node, whose folder the pod has. virt-handler has made it by now
// where it was to be made; it is raw, since its first bytes are the guest's to write.
func hostDisk(paths Paths, volume *v1.Volume, onlyRead bool) (Disk, error) {
	source, path := volume.HostDisk, hostDiskPath(paths, volume)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Disk{}, fmt.Errorf("there is no file %s on the node; put a raw disk image there, or set hostDisk.type to %s and a capacity", source.Path, v1.HostDiskExistsOrCreate)
	case err != nil:
		return Disk{}, fmt.Errorf("looking for the file %s of the node: %w", source.Path, err)
	case !info.Mode().IsRegular():
		return Disk{}, fmt.Errorf("%s of the node is no regular file (%s); name a raw disk image", source.Path, info.Mode())
	case info.Size() == 0:
		return Disk{}, fmt.Errorf("the file %s of the node is empty; put a raw disk image there, or delete it to have one made", source.Path)
	}
	access := uint32(unix.R_OK | unix.W_OK)
	if onlyRead {
		access = unix.R_OK
	}
	if err := unix.Access(path, access); err != nil {
		return Disk{}, fmt.Errorf("the file %s of the node cannot be used by uid %d (%w); give it to that user on the node", source.Path, names.QEMUUser, err)
	}
	image := domain.Image{Path: path, Format: domain.FormatRaw}
	// What other nodes see, too, must not stay in this one's page cache.
	shared := source.Shared != nil && *source.Shared
	return Disk{Disk: domain.Disk{Image: image, DirectIO: shared || directIO(path)}, Size: info.Size()}, nil
}

// hostDiskPath is where the pod has the file of the node.
func hostDiskPath(paths Paths, volume *v1.Volume) string {
	return filepath.Join(paths.Claims, volume.Name, filepath.Base(volume.HostDisk.Path))
}
