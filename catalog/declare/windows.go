package declare

import (
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// shutdownGrace is how long Windows may take, with its updates, to shut down, in seconds.
const shutdownGrace int64 = 3600

// spinlockRetries is after how many a waiting CPU tells the hypervisor.
const spinlockRetries uint32 = 8191

// windows is every Windows without drivers that do not come with it.
func windows(p *preference) {
	p.os = "windows"
	d := p.devices()
	d.PreferredAutoattachInputDevice = new(true)
	d.PreferredDiskBus, d.PreferredInterfaceModel = virtv1.DiskBusSATA, "e1000e"
	p.spec.CPU = &v1beta1.CPUPreferences{PreferredCPUTopology: new(v1beta1.Sockets)}
	p.spec.Clock = &v1beta1.ClockPreferences{
		PreferredClockOffset: &virtv1.ClockOffset{UTC: &virtv1.ClockOffsetUTC{}},
		PreferredTimer: &virtv1.Timer{
			HPET: &virtv1.HPETTimer{Enabled: new(false)}, Hyperv: &virtv1.HypervTimer{},
			PIT: &virtv1.PITTimer{TickPolicy: virtv1.PITTickPolicyDelay}, RTC: &virtv1.RTCTimer{TickPolicy: virtv1.RTCTickPolicyCatchup},
		},
	}
	f := p.features()
	f.PreferredAcpi, f.PreferredApic, f.PreferredHyperv = &virtv1.FeatureState{}, &virtv1.FeatureAPIC{}, enlightened()
	p.spec.PreferredTerminationGracePeriodSeconds = new(shutdownGrace)
}

// enlightened is what Windows uses of a hypervisor that it knows.
func enlightened() *virtv1.FeatureHyperv {
	on := func() *virtv1.FeatureState { return &virtv1.FeatureState{} }
	return &virtv1.FeatureHyperv{
		Relaxed: on(), VAPIC: on(), VPIndex: on(), Runtime: on(), SyNIC: on(), Reset: on(), Frequencies: on(), Reenlightenment: on(), IPI: on(),
		Spinlocks:  &virtv1.FeatureSpinlocks{Retries: new(spinlockRetries)},
		SyNICTimer: &virtv1.SyNICTimer{Direct: &virtv1.FeatureState{}},
		TLBFlush:   &virtv1.TLBFlush{},
	}
}

// drivers is a Windows with the virtio drivers.
func drivers(p *preference) {
	desktop(p)
	d := p.devices()
	d.PreferredDiskBus, d.PreferredInterfaceModel, d.PreferredVideoType = virtv1.DiskBusVirtio, virtv1.VirtIO, new("virtio")
}

// trusted is what Windows 11 asks for: signed boot loaders, whose keys stay, and a TPM.
func trusted(p *preference) {
	secureBoot(p)
	p.spec.Firmware.PreferredEfi.Persistent = new(true)
	p.devices().PreferredTPM = &virtv1.TPMDevice{Persistent: new(true)}
}

// model is the network card that the guest has a driver for.
func model(name string) wish {
	return func(p *preference) { p.devices().PreferredInterfaceModel = name }
}

// lowPCI is for guests that stumble over a PCI window above 4 GiB.
func lowPCI(p *preference) {
	p.spec.Annotations = map[string]string{virtv1.DisablePCIHole64: "true"}
}

// withDrivers are the two preferences of a Windows: as it comes, and with the virtio drivers.
func withDrivers(name, display string, wishes wish) []guest {
	const icon, tags = "windows", "windows"
	return []guest{
		{name, display, icon, tags, all(windows, wishes)},
		{name + ".virtio", display + " (virtio)", icon, tags, all(windows, wishes, drivers)},
	}
}
