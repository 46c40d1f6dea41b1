package hypervisor

import (
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/domain"
)

// SetVCPUs gives the running guest count processors, within those of its definition.
func (h *Hypervisor) SetVCPUs(count uint) error {
	return h.setVCPUs(count, libvirt.DOMAIN_VCPU_LIVE)
}

// VCPUs is how many processors the running guest has.
func (h *Hypervisor) VCPUs() (uint, error) {
	running, _, release, err := h.held()
	if err != nil {
		return 0, err
	}
	defer release()
	count, err := running.GetVcpusFlags(libvirt.DOMAIN_VCPU_LIVE)
	if err != nil {
		return 0, fmt.Errorf("counting the guest's processors: %w", plain(err))
	}
	return uint(count), nil //nolint:gosec // a count
}

// UseVCPUs asks the guest's agent to switch on count of its processors. It fails for as
// long as the guest's kernel has not found them.
func (h *Hypervisor) UseVCPUs(count uint) error {
	return h.setVCPUs(count, libvirt.DOMAIN_VCPU_GUEST)
}

func (h *Hypervisor) setVCPUs(count uint, flags libvirt.DomainVcpuFlags) error {
	running, _, release, err := h.held()
	if err != nil {
		return err
	}
	defer release()
	if err := running.SetVcpusFlags(count, flags); err != nil {
		return fmt.Errorf("giving the guest %d processors: %w", count, plain(err))
	}
	return nil
}

// errFixedMemory says that the domain has no device by which memory grows.
var errFixedMemory = errors.New("the guest was started without room for more memory; set spec.domain.memory.maxGuest and restart the VM")

// OfferMemory offers the running guest so many bytes beyond those that it began with, in
// whole blocks.
func (h *Hypervisor) OfferMemory(bytes int64) error {
	running, _, release, err := h.held()
	if err != nil {
		return err
	}
	defer release()
	document, err := running.GetXMLDesc(0)
	if err != nil {
		return fmt.Errorf("reading the running domain: %w", plain(err))
	}
	device, err := memoryDevice(document)
	if err != nil {
		return err
	}
	device.Target.Requested = &libvirtxml.DomainMemorydevTargetRequested{Value: uint(bytes / 1024), Unit: "KiB"} //nolint:gosec // never negative
	changed, err := device.Marshal()
	if err != nil {
		return fmt.Errorf("writing the memory device's XML: %w", err)
	}
	if err := running.UpdateDeviceFlags(changed, libvirt.DOMAIN_DEVICE_MODIFY_LIVE); err != nil {
		return fmt.Errorf("offering the guest %d bytes more: %w", bytes, plain(err))
	}
	return nil
}

// memoryDevice finds in a domain's document the device by which its memory grows.
func memoryDevice(document string) (*libvirtxml.DomainMemorydev, error) {
	spec := &libvirtxml.Domain{}
	if err := spec.Unmarshal(document); err != nil {
		return nil, fmt.Errorf("reading the running domain: %w", err)
	}
	if spec.Devices != nil {
		for i := range spec.Devices.Memorydevs {
			if device := &spec.Devices.Memorydevs[i]; device.Model == domain.MemoryModel && device.Target != nil {
				return device, nil
			}
		}
	}
	return nil, errFixedMemory
}
