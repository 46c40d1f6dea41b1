package domain

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// Format is how an image is written.
type Format string

// Formats of images.
const (
	FormatRaw   Format = "raw"
	FormatQCOW2 Format = "qcow2"
)

// Image is a file or block device with a disk in it.
type Image struct {
	Path   string
	Format Format
	Block  bool // Path is a block device
}

// Disk is what the launcher prepared for a volume.
type Disk struct {
	Image
	// Backing is the read-only image under a copy-on-write overlay; nil for none.
	Backing *Image
	// Ephemeral disks end with the pod, so their writes need not survive it.
	Ephemeral bool
	// DirectIO says that the image can be opened past the page cache.
	DirectIO bool
	// Shared devices are open in other pods too.
	Shared bool
	// ReadOnly disks are the guest's to read, whatever the VMI says.
	ReadOnly bool
	// Preallocated disks have all of their size, and keep it whatever the guest has no more use for.
	Preallocated bool
	// Blocks are the sizes of what is under the image, for a disk that is to have the same.
	Blocks *BlockSizes
}

// BlockSizes are in bytes what a device is read and written in, and what it does that in best.
type BlockSizes struct{ Logical, Physical uint }

// AliasPrefix starts the libvirt alias of every device that bears a name of the VMI's.
const AliasPrefix = "ua-"

func disks(in Input, domain *libvirtxml.Domain) error {
	orders := bootOrders(in.VMI)
	threads := newIOThreads(in.VMI)
	letters := targets{}
	for i := range in.VMI.Spec.Domain.Devices.Disks {
		spec := &in.VMI.Spec.Domain.Devices.Disks[i]
		source, ok := in.Disks[spec.Name]
		if !ok && spec.CDRom == nil { // a drive may be empty
			return fmt.Errorf("disk %s has no volume of that name: add it to spec.volumes", spec.Name)
		}
		out, err := disk(in.VMI, spec, source)
		if err != nil {
			return err
		}
		out.Target.Dev = letters.next(diskBus(spec))
		out.Boot = orders.of(spec.Name)
		threads.deal(spec, out.Driver)
		domain.Devices.Disks = append(domain.Devices.Disks, *out)
	}
	domain.IOThreads = threads.count()
	return nil
}

func disk(vmi *v1.VirtualMachineInstance, spec *v1.Disk, source Disk) (*libvirtxml.DomainDisk, error) {
	out := &libvirtxml.DomainDisk{
		Device: "disk",
		Driver: diskDriver(vmi, spec, source),
		Target: &libvirtxml.DomainDiskTarget{Bus: string(diskBus(spec))},
		Serial: spec.Serial,
		Alias:  &libvirtxml.DomainAlias{Name: AliasPrefix + spec.Name},
	}
	if source.Path != "" {
		out.Source = imageSource(source.Image)
	}
	switch {
	case spec.LUN != nil:
		if err := lun(spec, source, out); err != nil {
			return nil, err
		}
	case spec.CDRom != nil:
		if spec.CDRom.Tray == v1.TrayStateOpen {
			out.Target.Tray = "open"
		}
		if spec.CDRom.Bus == v1.DiskBusVirtio {
			return nil, fmt.Errorf("disk %s: a cdrom cannot be on the bus virtio; use sata or scsi", spec.Name)
		}
		out.Device = "cdrom"
		out.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	case source.ReadOnly, spec.Disk != nil && spec.Disk.ReadOnly:
		out.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	}
	if spec.Disk != nil {
		address, err := pciAddress(spec.Disk.PciAddress)
		if err != nil {
			return nil, fmt.Errorf("disk %s: %w", spec.Name, err)
		}
		out.Address = address
	}
	if diskBus(spec) == v1.DiskBusVirtio {
		out.Model = virtioModel(vmi)
	}
	if source.Shared || requested(spec.Shareable) {
		out.Shareable = &libvirtxml.DomainDiskShareable{}
	}
	if source.Backing != nil {
		// The end of the chain is said, so that nobody reads a guest's bytes to find it.
		out.BackingStore = &libvirtxml.DomainDiskBackingStore{
			Format: &libvirtxml.DomainDiskFormat{Type: string(source.Backing.Format)},
			Source: imageSource(*source.Backing), BackingStore: &libvirtxml.DomainDiskBackingStore{},
		}
	}
	return out, blockSize(spec, source, out)
}

// MatchesVolume says whether the disk is to have the block sizes of what its volume is on.
func MatchesVolume(spec *v1.Disk) bool {
	return spec.BlockSize != nil && spec.BlockSize.MatchVolume != nil && enabled(spec.BlockSize.MatchVolume.Enabled)
}

func blockSize(spec *v1.Disk, source Disk, out *libvirtxml.DomainDisk) error {
	switch {
	case spec.BlockSize == nil:
	case spec.BlockSize.Custom != nil:
		custom := spec.BlockSize.Custom
		out.BlockIO = &libvirtxml.DomainDiskBlockIO{
			LogicalBlockSize: custom.Logical, PhysicalBlockSize: custom.Physical, DiscardGranularity: custom.DiscardGranularity,
		}
	case MatchesVolume(spec) && source.Format != "": // an empty drive has no volume to match
		if source.Blocks == nil {
			return fmt.Errorf("disk %s: the block sizes of its volume are not known; give blockSize.custom", spec.Name)
		}
		out.BlockIO = &libvirtxml.DomainDiskBlockIO{LogicalBlockSize: source.Blocks.Logical, PhysicalBlockSize: source.Blocks.Physical}
	}
	return nil
}

// diskDriver chooses how QEMU opens the image. Without a wish of the user: past the
// page cache where the file system can, for a disk that must survive; without
// waiting for the platter, for a disk that ends with the pod anyway.
func diskDriver(vmi *v1.VirtualMachineInstance, spec *v1.Disk, source Disk) *libvirtxml.DomainDiskDriver {
	driver := &libvirtxml.DomainDiskDriver{
		Name: "qemu", Type: string(source.Format), Cache: string(spec.Cache), IO: string(spec.IO),
		Discard: "unmap", ErrorPolicy: string(v1.DiskErrorPolicyStop),
	}
	if source.Preallocated {
		driver.Discard = "" // what the guest gives back would be the volume's no more
	}
	if driver.Cache == "" {
		driver.Cache = defaultCache(spec, source)
	}
	if driver.IO == "" && driver.Cache == string(v1.CacheNone) && source.Block {
		driver.IO = string(v1.IONative)
	}
	if spec.ErrorPolicy != nil {
		driver.ErrorPolicy = string(*spec.ErrorPolicy)
	}
	if requested(vmi.Spec.Domain.Devices.BlockMultiQueue) && diskBus(spec) == v1.DiskBusVirtio {
		queues := VCPUs(vmi)
		driver.Queues = &queues
	}
	return driver
}

func defaultCache(spec *v1.Disk, source Disk) string {
	switch {
	case spec.IO == v1.IONative:
		return string(v1.CacheNone) // the kernel's own I/O is past the page cache or not at all
	case source.Ephemeral:
		return "unsafe"
	case source.DirectIO:
		return string(v1.CacheNone)
	default:
		return string(v1.CacheWriteThrough)
	}
}

func imageSource(image Image) *libvirtxml.DomainDiskSource {
	if image.Block {
		return &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: image.Path}}
	}
	return &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: image.Path}}
}

// diskBus is the bus asked for, SATA by default, as the API defines, SCSI for a lun.
func diskBus(spec *v1.Disk) v1.DiskBus {
	bus := v1.DiskBus("")
	switch {
	case spec.Disk != nil:
		bus = spec.Disk.Bus
	case spec.CDRom != nil:
		bus = spec.CDRom.Bus
	case spec.LUN != nil:
		bus = spec.LUN.Bus
	}
	switch {
	case bus == "" && spec.LUN != nil:
		return v1.DiskBusSCSI // no other takes the guest's commands to the device
	case bus == "":
		return v1.DiskBusSATA
	}
	return bus
}

// targets hands out names of devices: vda, vdb, … and sda, sdb, … by bus.
type targets map[string]int

func (t targets) next(bus v1.DiskBus) string {
	prefix := "sd"
	if bus == v1.DiskBusVirtio {
		prefix = "vd"
	}
	n := t[prefix]
	t[prefix]++
	suffix := ""
	for ; n >= 0; n = n/26 - 1 {
		suffix = string(rune('a'+n%26)) + suffix
	}
	return prefix + suffix
}
