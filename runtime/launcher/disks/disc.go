package disks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/cloudinit"
	"github.com/slipway-vm/slipway/runtime/configdisc"
	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/iso"
	"github.com/slipway-vm/slipway/runtime/launcher/credentials"
	"github.com/slipway-vm/slipway/runtime/sysprep"
)

// disc makes the image of a volume that is made of files. A configuration drive tells
// where the devices are that the user has tagged.
func disc(paths Paths, vmi *v1.VirtualMachineInstance, volume *v1.Volume, devices []cloudinit.Device) (Disk, error) {
	mounted := filepath.Join(paths.Secrets, volume.Name)
	label, isConfig := configdisc.Of(volume)
	source := cloudinit.Source(volume)
	switch {
	case isConfig:
		files, err := configdisc.Files(mounted)
		if err != nil {
			return Disk{}, err
		}
		return burn(paths, volume, func(path string) error { return iso.Write(path, label, files) })
	case volume.Sysprep != nil:
		files, err := sysprep.Files(mounted)
		if err != nil {
			return Disk{}, fmt.Errorf("%s: %w", sysprep.Of(volume.Sysprep), err)
		}
		return burn(paths, volume, func(path string) error { return sysprep.WriteISO(path, files) })
	case source != nil:
		data, err := cloudinit.FromVMI(vmi, source, mounted)
		if err != nil {
			return Disk{}, err
		}
		if data.PublicKeys, err = credentials.CloudInitKeys(paths.Credentials, vmi.Spec.AccessCredentials); err != nil {
			return Disk{}, err
		}
		data.Devices = devices
		return burn(paths, volume, func(path string) error { return writeCloudInit(path, volume, data) })
	}
	return Disk{}, errors.New("this source is not supported yet; use containerDisk, dataVolume, persistentVolumeClaim, ephemeral, emptyDisk, " +
		"cloudInitNoCloud, cloudInitConfigDrive, configMap, secret, serviceAccount, downwardAPI, downwardMetrics or sysprep")
}

func writeCloudInit(path string, volume *v1.Volume, data cloudinit.Data) error {
	if volume.CloudInitConfigDrive != nil {
		return cloudinit.WriteConfigDrive(path, data)
	}
	return cloudinit.WriteISO(path, data)
}

// burn makes the image of volume by write.
func burn(paths Paths, volume *v1.Volume, write func(path string) error) (Disk, error) {
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

// Describe makes the configuration drives of a VMI anew, with its tagged devices, whose
// places are known only once the domain is defined.
func Describe(paths Paths, vmi *v1.VirtualMachineInstance, devices []cloudinit.Device) error {
	for i := range vmi.Spec.Volumes {
		volume := &vmi.Spec.Volumes[i]
		if volume.CloudInitConfigDrive == nil {
			continue
		}
		if _, err := disc(paths, vmi, volume, devices); err != nil {
			return fmt.Errorf("telling devices on volume %s: %w", volume.Name, err)
		}
	}
	return nil
}
