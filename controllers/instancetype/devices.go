package instancetype

import (
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

func fillDevices(d *virtv1.Devices, p *v1beta1.DevicePreferences) {
	fillPointer(&d.AutoattachGraphicsDevice, p.PreferredAutoattachGraphicsDevice)
	fillPointer(&d.AutoattachMemBalloon, p.PreferredAutoattachMemBalloon)
	fillPointer(&d.AutoattachPodInterface, p.PreferredAutoattachPodInterface)
	fillPointer(&d.AutoattachSerialConsole, p.PreferredAutoattachSerialConsole)
	fillPointer(&d.AutoattachInputDevice, p.PreferredAutoattachInputDevice)
	fillPointer(&d.UseVirtioTransitional, p.PreferredUseVirtioTransitional)
	fillPointer(&d.Rng, p.PreferredRng)
	fillPointer(&d.BlockMultiQueue, p.PreferredBlockMultiQueue)
	fillPointer(&d.NetworkInterfaceMultiQueue, p.PreferredNetworkInterfaceMultiQueue)
	fillPointer(&d.TPM, p.PreferredTPM)
	if p.PreferredDisableHotplug != nil {
		d.DisableHotplug = d.DisableHotplug || *p.PreferredDisableHotplug
	}
	if d.Sound != nil && d.Sound.Model == "" {
		d.Sound.Model = p.PreferredSoundModel
	}
	if d.Video == nil && p.PreferredVideoType != nil {
		d.Video = &virtv1.VideoDevice{Type: *p.PreferredVideoType}
	}
	for i := range d.PanicDevices {
		fillPointer(&d.PanicDevices[i].Model, p.PreferredPanicDeviceModel)
	}
	attachInput(d, p)
	for i := range d.Inputs {
		fill(&d.Inputs[i].Bus, p.PreferredInputBus)
		fill(&d.Inputs[i].Type, p.PreferredInputType)
	}
}

// attachInput names the input that the guest gets without asking, where the preference says what
// it is to be like: the one that is attached otherwise is a USB tablet.
func attachInput(d *virtv1.Devices, p *v1beta1.DevicePreferences) {
	wanted := d.AutoattachInputDevice != nil && *d.AutoattachInputDevice
	headless := d.AutoattachGraphicsDevice != nil && !*d.AutoattachGraphicsDevice
	if wanted && !headless && len(d.Inputs) == 0 && (p.PreferredInputBus != "" || p.PreferredInputType != "") {
		d.Inputs = []virtv1.Input{{Name: "default-0"}}
	}
}

func fill[T comparable](target *T, value T) {
	var unset T
	if *target == unset {
		*target = value
	}
}

func fillDisks(disks []virtv1.Disk, p *v1beta1.DevicePreferences) {
	for i := range disks {
		disk := &disks[i]
		if disk.Disk == nil && disk.CDRom == nil && disk.LUN == nil {
			disk.Disk = &virtv1.DiskTarget{}
		}
		switch {
		case disk.Disk != nil:
			fill(&disk.Disk.Bus, p.PreferredDiskBus)
		case disk.CDRom != nil:
			fill(&disk.CDRom.Bus, p.PreferredCdromBus)
		case disk.LUN != nil:
			fill(&disk.LUN.Bus, p.PreferredLunBus)
		}
		fill(&disk.Cache, p.PreferredDiskCache)
		fill(&disk.IO, p.PreferredDiskIO)
		if disk.BlockSize == nil && p.PreferredDiskBlockSize != nil {
			disk.BlockSize = p.PreferredDiskBlockSize.DeepCopy()
		}
		if disk.Disk != nil && disk.Disk.Bus == virtv1.DiskBusVirtio {
			fillPointer(&disk.DedicatedIOThread, p.PreferredDiskDedicatedIoThread)
		}
	}
}

func fillInterfaces(d *virtv1.Devices, p *v1beta1.DevicePreferences) {
	for i := range d.Interfaces {
		iface := &d.Interfaces[i]
		fill(&iface.Model, p.PreferredInterfaceModel)
		if p.PreferredInterfaceMasquerade != nil && unbound(iface) {
			iface.Masquerade = new(*p.PreferredInterfaceMasquerade)
		}
	}
}

func unbound(iface *virtv1.Interface) bool {
	return iface.InterfaceBindingMethod == virtv1.InterfaceBindingMethod{} && iface.Binding == nil
}
