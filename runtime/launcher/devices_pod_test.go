//go:build integration

package launcher_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// TestMachinesOfAllKindsStart shows that QEMU takes what the domain's builder makes,
// beyond libvirt's own check of the XML.
func TestMachinesOfAllKindsStart(t *testing.T) {
	yes, no := true, false
	efi := func(secure *bool) func(*protocol.Sync) {
		return func(s *protocol.Sync) {
			s.VMI.Spec.Domain.Firmware = &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{SecureBoot: secure}}}
		}
	}
	type machine struct {
		edit func(*protocol.Sync)
		kvm  bool
	}
	cases := map[string]machine{
		"UEFI":                  {edit: efi(&no)},
		"UEFI with secure boot": {edit: efi(nil)},
		"a serial BIOS without a screen": {edit: func(s *protocol.Sync) {
			s.VMI.Spec.Domain.Firmware = &v1.Firmware{Serial: "S1", Bootloader: &v1.Bootloader{BIOS: &v1.BIOS{UseSerial: &yes}}}
			s.VMI.Spec.Domain.Devices.AutoattachGraphicsDevice = &no
		}},
		"the older machine type":                   {edit: func(s *protocol.Sync) { s.VMI.Spec.Domain.Machine = &v1.Machine{Type: "pc"} }},
		"every bus, four processors, every device": {edit: everything},
		"a processor by its name": {edit: func(s *protocol.Sync) {
			s.VMI.Spec.Domain.CPU = &v1.CPU{Model: "Skylake-Client", Features: []v1.CPUFeature{{Name: "avx512f", Policy: "require"}}}
		}},
		"what Windows asks for, under emulation": {edit: windows},
	}
	if _, err := os.Stat("/dev/kvm"); err == nil {
		// Nested hosts refuse some settings of their own processor's model (MSR 0x10a) and
		// of Hyper-V's, so this asks for neither; the golden tests have those.
		cases["KVM"] = machine{kvm: true, edit: func(s *protocol.Sync) { s.VMI.Spec.Domain.CPU = &v1.CPU{Model: "Nehalem"} }}
	} else {
		t.Log("This machine has no /dev/kvm: machines are started under emulation only")
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.kvm {
				t.Setenv("POD_KVM", "1")
			}
			p := start(t)
			p.connected()
			message := protocol.Sync{VMI: unbootable(), Facts: protocol.Facts{AllowEmulation: true, Interfaces: links()}}
			c.edit(&message)
			var state protocol.State
			if err := p.conn.Call(t.Context(), protocol.TypeSync, message, &state); err != nil || state.Phase != protocol.PhaseRunning || state.KVM != c.kvm {
				t.Fatalf("%+v, %v", state, err)
			}
			sockets := []string{"virt-serial0"}
			if graphics := message.VMI.Spec.Domain.Devices.AutoattachGraphicsDevice; graphics == nil || *graphics {
				sockets = append(sockets, "virt-vnc")
			}
			if domain.RedirectsUSB(message.VMI) {
				sockets = append(sockets, "virt-usbredir-0")
				for _, slot := range []int{0, v1.UsbClientPassthroughMaxNumberOf - 1} {
					p.hear(p.connect(protocol.ChannelUSB(slot)), "qemu usb-redir guest")
				}
			}
			for _, socket := range sockets {
				if info, err := os.Stat(filepath.Join(p.dir, "private", uid, socket)); err != nil || info.Mode().Type() != os.ModeSocket {
					t.Errorf("%s is no socket: %v", socket, err)
				}
			}
			if err := p.conn.Call(t.Context(), protocol.TypeDestroy, nil, nil); err != nil {
				t.Error(err)
			}
			p.until("the end", phase(protocol.PhaseShutdown))
		})
	}
}

func everything(s *protocol.Sync) {
	vmi := s.VMI
	multiqueue, transitional := true, true
	devices := &vmi.Spec.Domain.Devices
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 2, Cores: 2}
	devices.NetworkInterfaceMultiQueue, devices.BlockMultiQueue, devices.UseVirtioTransitional = &multiqueue, &multiqueue, &transitional
	devices.AutoattachInputDevice = &multiqueue
	devices.ClientPassthrough = &v1.ClientPassthroughDevices{}
	devices.Inputs = []v1.Input{{Name: "t", Type: v1.InputTypeTablet, Bus: v1.InputBusUSB}, {Name: "k", Type: v1.InputTypeKeyboard, Bus: v1.InputBusVirtio}}
	devices.Watchdog = &v1.Watchdog{Name: "w", WatchdogDevice: v1.WatchdogDevice{I6300ESB: &v1.I6300ESBWatchdog{}}}
	devices.PanicDevices = []v1.PanicDevice{{}, {Model: new(v1.Pvpanic)}}
	policy := v1.IOThreadsPolicyAuto
	vmi.Spec.Domain.IOThreadsPolicy = &policy
	for name, device := range map[string]v1.DiskDevice{
		"virtio": {Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio, ReadOnly: false}}, "sata": {Disk: &v1.DiskTarget{}}, "scsi": {Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}},
		"usb": {Disk: &v1.DiskTarget{Bus: v1.DiskBusUSB}}, "cd": {CDRom: &v1.CDRomTarget{}}, "scsicd": {CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSCSI}},
	} {
		devices.Disks = append(devices.Disks, v1.Disk{Name: name, DiskDevice: device, Serial: "s" + name, IO: v1.IONative})
		empty := &v1.EmptyDiskSource{Capacity: resource.MustParse("8Mi")}
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDisk: empty}})
	}
	order := uint(1)
	devices.Interfaces = []v1.Interface{{Name: "default", BootOrder: &order}, {Name: "second"}, {Name: "gone", State: v1.InterfaceStateAbsent}}
	s.Facts.Interfaces = append(s.Facts.Interfaces, protocol.Interface{Name: "second", Tap: "tap1", MAC: "02:00:00:00:00:02", MTU: 1500, Queues: 4})
}

func windows(s *protocol.Sync) {
	on := &v1.FeatureState{}
	s.VMI.Spec.Domain.Features = &v1.Features{Hyperv: &v1.FeatureHyperv{
		Relaxed: on, VAPIC: on, VPIndex: on, SyNIC: on, Reset: on, Spinlocks: &v1.FeatureSpinlocks{},
		SyNICTimer: &v1.SyNICTimer{}, Runtime: on,
	}}
	s.VMI.Spec.Domain.Clock = &v1.Clock{
		ClockOffset: v1.ClockOffset{UTC: &v1.ClockOffsetUTC{}},
		Timer:       &v1.Timer{HPET: &v1.HPETTimer{Enabled: new(bool)}, Hyperv: &v1.HypervTimer{}, RTC: &v1.RTCTimer{TickPolicy: v1.RTCTickPolicyCatchup}},
	}
	s.VMI.Spec.Domain.Devices.Interfaces[0].Model = "e1000e"
	s.VMI.Spec.Domain.Devices.PanicDevices = []v1.PanicDevice{{Model: new(v1.Hyperv)}, {Model: new(v1.Isa)}}
}
