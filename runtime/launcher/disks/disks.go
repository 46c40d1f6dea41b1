// Package disks makes a VMI's volumes ready for QEMU: overlays on container disks and
// claims, images on claims, empty disks, and the discs by which files reach the guest.
package disks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/downward"
	"github.com/slipway-vm/slipway/runtime/launcher/qcow2"
)

// Paths are where volumes are in the pod.
type Paths struct {
	Claims  string // <volume>/disk.img of Filesystem claims, <volume>/<file> of files of the node
	Blocks  string // <volume> of Block claims
	Secrets string // <volume>/ of what volumes show as discs: ConfigMaps, Secrets, tokens, facts of the pod
	Scratch string // images that end with the pod
	// Credentials has the Secrets of access credentials, by their place in the list.
	Credentials string
}

// PodPaths are the paths of a launcher pod, with scratch for this VMI's own images.
func PodPaths(scratch string) Paths {
	return Paths{
		Claims: names.LauncherDisksDir, Blocks: names.LauncherBlockDir, Secrets: names.LauncherSecretsDir, Scratch: scratch,
		Credentials: names.LauncherCredentialsDir,
	}
}

// Request is what to prepare.
type Request struct {
	VMI *v1.VirtualMachineInstance
	// ContainerDisks are the open images of containerDisk volumes. They stay open for
	// as long as QEMU may open them by their number.
	ContainerDisks map[string]*os.File
	// ClaimSizes are capacities of claims in bytes.
	ClaimSizes map[string]int64
	// Preallocated are the volumes whose claims keep all of their size.
	Preallocated []string
}

// Disk is a prepared volume.
type Disk struct {
	domain.Disk
	// Size is the virtual size in bytes.
	Size int64
}

// Prepare makes the disks of all volumes that the VMI attaches.
func Prepare(paths Paths, request Request) (map[string]Disk, error) {
	if err := os.MkdirAll(paths.Scratch, 0o770); err != nil {
		return nil, fmt.Errorf("making the folder of images: %w", err)
	}
	attached := map[string]bool{}
	for i := range request.VMI.Spec.Domain.Devices.Disks {
		attached[request.VMI.Spec.Domain.Devices.Disks[i].Name] = true
	}
	out := map[string]Disk{}
	for i := range request.VMI.Spec.Volumes {
		volume := &request.VMI.Spec.Volumes[i]
		if !attached[volume.Name] {
			continue
		}
		disk, err := prepare(paths, request, volume)
		if err != nil {
			return nil, fmt.Errorf("preparing volume %s: %w", volume.Name, err)
		}
		disk.Preallocated = slices.Contains(request.Preallocated, volume.Name)
		if disk.Blocks, err = matched(request.VMI, volume.Name, disk.Path); err != nil {
			return nil, err
		}
		out[volume.Name] = disk
	}
	return out, nil
}

func prepare(paths Paths, request Request, volume *v1.Volume) (Disk, error) {
	switch {
	case volume.ContainerDisk != nil:
		return containerDisk(paths, volume.Name, request.ContainerDisks[volume.Name])
	case volume.PersistentVolumeClaim != nil:
		return claim(paths, volume.Name, use{
			capacity: request.ClaimSizes[volume.Name], readOnly: volume.PersistentVolumeClaim.ReadOnly, fixed: onlyRead(request.VMI, volume.Name),
		})
	case volume.DataVolume != nil:
		return claim(paths, volume.Name, use{capacity: request.ClaimSizes[volume.Name], fixed: onlyRead(request.VMI, volume.Name)})
	case volume.Ephemeral != nil:
		return ephemeral(paths, volume.Name)
	case volume.EmptyDisk != nil:
		return emptyDisk(paths, volume)
	case volume.HostDisk != nil:
		return hostDisk(paths, volume, onlyRead(request.VMI, volume.Name))
	case volume.DownwardMetrics != nil:
		return metricsDisk(paths, volume.Name)
	default:
		return disc(paths, request.VMI, volume, nil)
	}
}

// containerDisk makes an overlay on an image that came as an open file: QEMU opens
// it through the launcher's /proc entry, so the image needs no path in this pod.
func containerDisk(paths Paths, volume string, image *os.File) (Disk, error) {
	if image == nil {
		return Disk{}, errors.New("virt-handler sent no image for it; the init container of the volume says why")
	}
	info, err := image.Stat()
	if err != nil {
		return Disk{}, fmt.Errorf("looking at the image: %w", err)
	}
	content, err := qcow2.Inspect(image, info.Size())
	if err != nil {
		return Disk{}, err
	}
	backing := domain.Image{Path: OpenPath(image), Format: domain.FormatRaw}
	if content.QCOW2 {
		backing.Format = domain.FormatQCOW2
	}
	overlay, err := scratchImage(paths, volume, content.Size, &qcow2.Backing{Path: backing.Path, Format: string(backing.Format)})
	overlay.Backing = &backing
	return overlay, err
}

// OpenPath is where QEMU opens a file that the launcher has open.
func OpenPath(file *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd()) }

// ephemeral makes an overlay on the disk of a claim, which is only read: others may have
// it as their base too.
func ephemeral(paths Paths, volume string) (Disk, error) {
	base, err := claim(paths, volume, use{readOnly: true})
	if err != nil {
		return Disk{}, err
	}
	overlay, err := scratchImage(paths, volume, base.Size, &qcow2.Backing{Path: base.Path, Format: string(base.Format)})
	overlay.Backing = &base.Image
	return overlay, err
}

func emptyDisk(paths Paths, volume *v1.Volume) (Disk, error) {
	return scratchImage(paths, volume.Name, volume.EmptyDisk.Capacity.Value(), nil)
}

// MetricsPath is where the disk is that tells the guest of its node.
func MetricsPath(paths Paths, volume string) string {
	return filepath.Join(paths.Scratch, volume+".metrics")
}

// metricsDisk makes a disk with no metrics yet, which the guest can only read.
func metricsDisk(paths Paths, volume string) (Disk, error) {
	path := MetricsPath(paths, volume)
	if err := removeStale(path); err != nil {
		return Disk{}, err
	}
	if err := downward.CreateDisk(path); err != nil {
		return Disk{}, err
	}
	image := domain.Image{Path: path, Format: domain.FormatRaw}
	return Disk{Disk: domain.Disk{Image: image, Ephemeral: true, ReadOnly: true}, Size: downward.DiskSize}, nil
}

func scratchImage(paths Paths, volume string, size int64, backing *qcow2.Backing) (Disk, error) {
	path := filepath.Join(paths.Scratch, volume+".qcow2")
	if err := removeStale(path); err != nil {
		return Disk{}, err
	}
	if err := qcow2.Create(path, size, backing); err != nil {
		return Disk{}, err
	}
	image := domain.Image{Path: path, Format: domain.FormatQCOW2}
	return Disk{Disk: domain.Disk{Image: image, Ephemeral: true}, Size: size}, nil
}

// removeStale drops what an earlier attempt to start left.
func removeStale(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing an earlier image: %w", err)
	}
	return nil
}

// directIO says whether an image can be opened past the page cache.
func directIO(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}
