package fuzz

import (
	"fmt"
	"time"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/dedicated"
	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// input is what a handler and a launcher would have prepared for vmi; turn chooses among the ways
// in which that may be.
func input(vmi *virtv1.VirtualMachineInstance, kvm bool, turn int) domain.Input {
	const private = "/var/run/kubevirt-private/uid/"
	in := domain.Input{
		VMI: vmi, KVM: kvm, Disks: map[string]domain.Disk{},
		Console:   domain.Console{Socket: private + "virt-serial0", Log: private + "virt-serial0-pipe"},
		VNCSocket: private + "virt-vnc", USBSockets: private + "virt-usbredir-", MetricsSocket: private + "virt-downwardmetrics",
		Firmware: domain.DebianFirmware(private + "nvram.fd"),
		StateDir: "/var/run/kubevirt-private/vm-state", SecretsDir: "/var/run/kubevirt-private/secret",
		FilesystemSockets: private + "virt-fs-",
		CPUs:              processors(vmi, kvm), Now: time.Unix(1790000000, 0),
	}
	if domain.HasVSOCK(vmi) {
		vmi.Status.VSOCKCID = new(uint32(3 + turn)) //nolint:gosec // small
	}
	if firmware := vmi.Spec.Domain.Firmware; firmware != nil && firmware.KernelBoot != nil {
		in.Kernel.Kernel = private + "kernel"
		if container := firmware.KernelBoot.Container; container != nil && container.InitrdPath != "" {
			in.Kernel.Initrd = private + "initrd"
		}
	}
	for i := range vmi.Spec.Volumes {
		disk := prepared(private+vmi.Spec.Volumes[i].Name, kind(&vmi.Spec.Volumes[i], turn+i))
		disk.ReadOnly = vmi.Spec.Volumes[i].DownwardMetrics != nil
		in.Disks[vmi.Spec.Volumes[i].Name] = disk
	}
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		in.Interfaces = append(in.Interfaces, protocol.Interface{
			Name: vmi.Spec.Domain.Devices.Interfaces[i].Name, Tap: fmt.Sprintf("tap%d", i),
			MAC: fmt.Sprintf("02:00:00:00:01:%02x", i), MTU: 1450, Queues: 1 + (turn+i)%3,
		})
	}
	return in
}

// processors are as many as the pod would have for itself. With KVM they are two of a core, on two
// NUMA nodes; else they are all the first, for libvirt asks the machine that it runs on about them.
func processors(vmi *virtv1.VirtualMachineInstance, kvm bool) []domain.HostCPU {
	if !dedicated.Asked(vmi) {
		return nil
	}
	cpus := make([]domain.HostCPU, dedicated.CPUs(vmi, int64(domain.VCPUs(vmi))))
	if !kvm {
		return cpus
	}
	for i := range cpus {
		id := uint(i)
		cpus[i] = domain.HostCPU{ID: id, Core: id / 2 * 2}
		if i >= len(cpus)/4*2 {
			cpus[i].Node = 1
		}
	}
	return cpus
}

// kind is one of the kinds of disks that a volume can be: an overlay only what is made for its
// guest alone.
func kind(volume *virtv1.Volume, turn int) int {
	if volume.ContainerDisk != nil || volume.EmptyDisk != nil || volume.Ephemeral != nil {
		return turn
	}
	return 1 + turn%3
}

// prepared is one of the kinds of disks that there are.
func prepared(path string, turn int) domain.Disk {
	blocks := &domain.BlockSizes{Logical: 512, Physical: 4096}
	switch turn % 4 {
	case 0:
		return domain.Disk{Image: domain.Image{Path: path + ".qcow2", Format: domain.FormatQCOW2}, Ephemeral: true, Blocks: blocks,
			Backing: &domain.Image{Path: path + ".img", Format: domain.FormatRaw}}
	case 1:
		return domain.Disk{Image: domain.Image{Path: path, Format: domain.FormatRaw, Block: true}, DirectIO: true, Blocks: blocks}
	case 2:
		return domain.Disk{Image: domain.Image{Path: path, Format: domain.FormatRaw, Block: true}, DirectIO: true, Shared: true, Blocks: blocks}
	default:
		return domain.Disk{Image: domain.Image{Path: path + ".img", Format: domain.FormatRaw}, Preallocated: true, Blocks: blocks}
	}
}
