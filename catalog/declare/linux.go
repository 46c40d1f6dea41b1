package declare

import (
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// paravirtual is what every Linux of the last fifteen years has drivers for.
func paravirtual(p *preference) {
	p.os = "linux"
	d := p.devices()
	d.PreferredDiskBus, d.PreferredInterfaceModel, d.PreferredRng = virtv1.DiskBusVirtio, virtv1.VirtIO, &virtv1.Rng{}
}

// old is a guest that knows none of that.
func old(p *preference) {
	p.os = "legacy"
	p.devices().PreferredDiskBus, p.devices().PreferredInterfaceModel = virtv1.DiskBusSATA, "e1000"
}

// diskThread gives each disk a thread of its own.
func diskThread(p *preference) { p.devices().PreferredDiskDedicatedIoThread = new(true) }

// queues gives interfaces a queue for each CPU.
func queues(p *preference) { p.devices().PreferredNetworkInterfaceMultiQueue = new(true) }

// transitional is for kernels before virtio 1.0.
func transitional(p *preference) { p.devices().PreferredUseVirtioTransitional = new(true) }

// desktop points with a tablet, which needs no capture of the mouse.
func desktop(p *preference) {
	d := p.devices()
	d.PreferredAutoattachInputDevice, d.PreferredInputBus, d.PreferredInputType = new(true), virtv1.InputBusVirtio, virtv1.InputTypeTablet
}

// uefi starts any boot loader, secureBoot only signed ones.
func uefi(p *preference) { p.firmware(false) }

func secureBoot(p *preference) {
	p.firmware(true)
	p.features().PreferredSmm = &virtv1.FeatureState{}
}

func (p *preference) firmware(secure bool) {
	p.spec.Firmware = &v1beta1.FirmwarePreferences{PreferredEfi: &virtv1.EFI{SecureBoot: &secure}}
}

func (p *preference) features() *v1beta1.FeaturePreferences {
	if p.spec.Features == nil {
		p.spec.Features = &v1beta1.FeaturePreferences{}
	}
	return p.spec.Features
}

// on is the architecture that the guest is made for.
func on(arch string) wish {
	return func(p *preference) {
		p.spec.PreferredArchitecture = &arch
		p.requirements().Architecture = &arch
		p.labels[domain+"arch"], p.labels[domain+"preferred-architecture"], p.labels[domain+"required-architecture"] = arch, arch, arch
	}
}

// spread puts CPUs into sockets, cores and threads; ratio 0 leaves the ratio open.
func spread(ratio uint32) wish {
	return func(p *preference) {
		options := &v1beta1.SpreadOptions{Across: new(v1beta1.SpreadAcrossSocketsCoresThreads)}
		if ratio > 0 {
			options.Ratio = &ratio
		}
		p.spec.CPU = &v1beta1.CPUPreferences{PreferredCPUTopology: new(v1beta1.Spread), SpreadOptions: options}
	}
}

func dpdk(p *preference) {
	p.tags = ",dpdk"
	all(spread(4), queues)(p)
}

func realtime(p *preference) {
	p.tags = ",realtime"
	all(spread(0), queues)(p)
	d := p.devices()
	d.PreferredAutoattachGraphicsDevice, d.PreferredAutoattachMemBalloon, d.PreferredAutoattachSerialConsole = new(false), new(false), new(true)
}
