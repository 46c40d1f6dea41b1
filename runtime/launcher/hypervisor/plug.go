package hypervisor

import (
	"encoding/xml"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// Attach gives the running domain a disk.
func (h *Hypervisor) Attach(disk *libvirtxml.DomainDisk) error {
	domain, _, release, err := h.held()
	if err != nil {
		return err
	}
	defer release()
	document, err := disk.Marshal()
	if err != nil {
		return fmt.Errorf("writing the disk's XML: %w", err)
	}
	if err := domain.AttachDeviceFlags(document, libvirt.DOMAIN_DEVICE_MODIFY_LIVE); err != nil {
		return fmt.Errorf("giving the guest the disk: %w", plain(err))
	}
	return nil
}

// Detach asks the guest to let go of the device called alias; DeviceRemoved tells when it has.
func (h *Hypervisor) Detach(alias string) error {
	domain, _, release, err := h.held()
	if err != nil {
		return err
	}
	defer release()
	if err := domain.DetachDeviceAlias(alias, libvirt.DOMAIN_DEVICE_MODIFY_LIVE); err != nil {
		return fmt.Errorf("taking the disk from the guest: %w", plain(err))
	}
	return nil
}

// Insert puts what source is into the drive called alias, or nothing when it is nil. All
// else of the drive stays as it is: libvirt changes nothing of a drive but its disc.
func (h *Hypervisor) Insert(alias string, source *libvirtxml.DomainDiskSource) error {
	domain, _, release, err := h.held()
	if err != nil {
		return err
	}
	defer release()
	drive, err := driveOf(domain, alias)
	if err != nil {
		return err
	}
	drive.Source, drive.BackingStore, drive.Driver.Type = source, nil, "raw"
	document, err := drive.Marshal()
	if err != nil {
		return fmt.Errorf("writing the drive's XML: %w", err)
	}
	if err := domain.UpdateDeviceFlags(document, libvirt.DOMAIN_DEVICE_MODIFY_LIVE); err != nil {
		return fmt.Errorf("changing the disc in the drive: %w", plain(err))
	}
	return nil
}

// Cache is how QEMU caches what is in the drive called alias.
func (h *Hypervisor) Cache(alias string) (string, error) {
	domain, _, release, err := h.held()
	if err != nil {
		return "", err
	}
	defer release()
	drive, err := driveOf(domain, alias)
	if err != nil {
		return "", err
	}
	return drive.Driver.Cache, nil
}

// driveOf reads the drive called alias as it is.
func driveOf(domain *libvirt.Domain, alias string) (*libvirtxml.DomainDisk, error) {
	document, err := domain.GetXMLDesc(0)
	if err != nil {
		return nil, fmt.Errorf("reading the drive: %w", plain(err))
	}
	var running libvirtxml.Domain
	if err := running.Unmarshal(document); err != nil {
		return nil, fmt.Errorf("reading the drive: %w", err)
	}
	for i := range running.Devices.Disks {
		if drive := &running.Devices.Disks[i]; drive.Alias != nil && drive.Alias.Name == alias && drive.Driver != nil {
			return drive, nil
		}
	}
	return nil, fmt.Errorf("the machine has no drive %s; it comes at the next start", alias)
}

// Disks are the targets of the domain's disks, by alias.
func (h *Hypervisor) Disks() (map[string]string, error) {
	domain, _, release, err := h.held()
	if err != nil {
		return nil, err
	}
	defer release()
	document, err := domain.GetXMLDesc(0)
	if err != nil {
		return nil, fmt.Errorf("reading the domain's disks: %w", plain(err))
	}
	var read struct {
		Disks []struct {
			Alias struct {
				Name string `xml:"name,attr"`
			} `xml:"alias"`
			Target struct {
				Dev string `xml:"dev,attr"`
			} `xml:"target"`
		} `xml:"devices>disk"`
	}
	if err := xml.Unmarshal([]byte(document), &read); err != nil {
		return nil, fmt.Errorf("reading the domain's disks: %w", err)
	}
	targets := map[string]string{}
	for _, disk := range read.Disks {
		targets[disk.Alias.Name] = disk.Target.Dev
	}
	return targets, nil
}

// subscribeDevices asks for what becomes of devices that were to leave.
func (h *Hypervisor) subscribeDevices(conn *libvirt.Connect) error {
	_, err := conn.DomainEventDeviceRemovedRegister(nil, func(_ *libvirt.Connect, _ *libvirt.Domain, event *libvirt.DomainEventDeviceRemoved) {
		h.events <- Event{Kind: DeviceRemoved, Detail: event.DevAlias}
	})
	if err != nil {
		return fmt.Errorf("asking libvirt for removed devices: %w", err)
	}
	_, err = conn.DomainEventDeviceRemovalFailedRegister(nil, func(_ *libvirt.Connect, _ *libvirt.Domain, event *libvirt.DomainEventDeviceRemovalFailed) {
		h.events <- Event{Kind: DeviceStays, Detail: event.DevAlias}
	})
	if err != nil {
		return fmt.Errorf("asking libvirt for devices that stay: %w", err)
	}
	return nil
}
