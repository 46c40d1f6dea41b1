// Package disks makes a VMI's volumes ready for QEMU: overlays on container disks,
// images on claims, empty disks, the disk for cloud-init and the disc of answers for Windows.
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
	"github.com/slipway-vm/slipway/runtime/cloudinit"
	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/qcow2"
	"github.com/slipway-vm/slipway/runtime/sysprep"
)

// Paths are where volumes are in the pod.
type Paths struct {
	Claims  string // <volume>/disk.img of Filesystem claims
	Blocks  string // <volume> of Block claims
	Secrets string // <volume>/ of cloud-init's Secrets, and of a sysprep volume's ConfigMap or Secret
	Scratch string // images that end with the pod
}

// PodPaths are the paths of a launcher pod, with scratch for this VMI's own images.
func PodPaths(scratch string) Paths {
	return Paths{Claims: names.LauncherDisksDir, Blocks: names.LauncherBlockDir, Secrets: names.LauncherSecretsDir, Scratch: scratch}
}

// Request is what to prepare.
type Request struct {
	VMI *v1.VirtualMachineInstance
	// ContainerDisks are the open images of containerDisk volumes. They stay open for
	// as long as QEMU may open them by their number.
	ContainerDisks map[string]*os.File
	// ClaimSizes are capacities of claims in bytes.
	ClaimSizes map[string]int64
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
		out[volume.Name] = disk
	}
	return out, nil
}

func prepare(paths Paths, request Request, volume *v1.Volume) (Disk, error) {
	switch {
	case volume.ContainerDisk != nil:
		return containerDisk(paths, volume.Name, request.ContainerDisks[volume.Name])
	case volume.PersistentVolumeClaim != nil, volume.DataVolume != nil:
		return claim(paths, volume.Name, request.ClaimSizes[volume.Name])
	case volume.CloudInitNoCloud != nil:
		return cloudInit(paths, request.VMI, volume)
	case volume.Sysprep != nil:
		return answers(paths, volume)
	case volume.EmptyDisk != nil:
		return emptyDisk(paths, volume)
	default:
		return Disk{}, errors.New("this source is not supported yet; use containerDisk, dataVolume, persistentVolumeClaim, cloudInitNoCloud, sysprep or emptyDisk")
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
	backing := domain.Image{Path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), image.Fd()), Format: domain.FormatRaw}
	if content.QCOW2 {
		backing.Format = domain.FormatQCOW2
	}
	overlay, err := scratchImage(paths, volume, content.Size, &qcow2.Backing{Path: backing.Path, Format: string(backing.Format)})
	overlay.Backing = &backing
	return overlay, err
}

func emptyDisk(paths Paths, volume *v1.Volume) (Disk, error) {
	return scratchImage(paths, volume.Name, volume.EmptyDisk.Capacity.Value(), nil)
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

func cloudInit(paths Paths, vmi *v1.VirtualMachineInstance, volume *v1.Volume) (Disk, error) {
	data, err := cloudinit.FromVMI(vmi, volume.CloudInitNoCloud, filepath.Join(paths.Secrets, volume.Name))
	if err != nil {
		return Disk{}, err
	}
	return disc(paths, volume, func(path string) error { return cloudinit.WriteISO(path, data) })
}

// answers makes the disc from which Windows is set up.
func answers(paths Paths, volume *v1.Volume) (Disk, error) {
	files, err := sysprep.Files(filepath.Join(paths.Secrets, volume.Name))
	if err != nil {
		return Disk{}, fmt.Errorf("%s: %w", sysprep.Of(volume.Sysprep), err)
	}
	return disc(paths, volume, func(path string) error { return sysprep.WriteISO(path, files) })
}

// disc is an image that write makes for volume.
func disc(paths Paths, volume *v1.Volume, write func(path string) error) (Disk, error) {
	path := filepath.Join(paths.Scratch, volume.Name+".iso")
	if err := removeStale(path); err != nil {
		return Disk{}, err
	}
	if err := write(path); err != nil {
		return Disk{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Disk{}, fmt.Errorf("looking at the new disc: %w", err)
	}
	image := domain.Image{Path: path, Format: domain.FormatRaw}
	return Disk{Disk: domain.Disk{Image: image, Ephemeral: true}, Size: info.Size()}, nil
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
