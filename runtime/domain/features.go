package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/internal/dedicated"
	"github.com/slipway-vm/slipway/internal/overhead"
)

// tcgCache is the size in MiB of QEMU's buffer of translated code. The launcher pod's memory
// request counts with it.
func tcgCache(vmi *v1.VirtualMachineInstance) (uint, error) {
	bytes, err := GuestMemory(vmi)
	if err != nil {
		return 0, err
	}
	return uint(overhead.TranslationBuffer(bytes) >> 20), nil
}

// features are the machine's abilities that have no device. What names KVM's own
// abilities (hyperv, kvm, pvspinlock) is left out under emulation, which has none of
// them; the VMI then carries the condition SoftwareEmulation.
func features(in Input, domain *libvirtxml.Domain) error {
	spec := in.VMI.Spec.Domain.Features
	if spec == nil {
		spec = &v1.Features{}
	}
	out := &libvirtxml.DomainFeatureList{}
	if enabled(spec.ACPI.Enabled) {
		out.ACPI = &libvirtxml.DomainFeature{}
	}
	if spec.APIC == nil || enabled(spec.APIC.Enabled) {
		out.APIC = &libvirtxml.DomainFeatureAPIC{}
		if spec.APIC != nil && spec.APIC.EndOfInterrupt {
			out.APIC.EOI = "on"
		}
	}
	if spec.SMM != nil || secureBoot(in.VMI) {
		on := secureBoot(in.VMI) || enabled(spec.SMM.Enabled)
		out.SMM = &libvirtxml.DomainFeatureSMM{State: onOff(on)}
	}
	out.VMPort = &libvirtxml.DomainFeatureState{State: "off"}
	if in.KVM {
		kvmFeatures(spec, out)
		dedicatedFeatures(in.VMI, out)
	} else {
		size, err := tcgCache(in.VMI)
		if err != nil {
			return err
		}
		out.TCG = &libvirtxml.DomainFeatureTCG{TBCache: &libvirtxml.DomainFeatureTCGTBCache{Unit: "MiB", Size: size}}
	}
	domain.Features = out
	return nil
}

func kvmFeatures(spec *v1.Features, out *libvirtxml.DomainFeatureList) {
	if spec.KVM != nil && spec.KVM.Hidden {
		out.KVM = &libvirtxml.DomainFeatureKVM{Hidden: &libvirtxml.DomainFeatureState{State: "on"}}
	}
	out.PVSpinlock = state(spec.Pvspinlock)
	switch pass := spec.HypervPassthrough; {
	case spec.Hyperv != nil:
		out.HyperV = hyperv(spec.Hyperv)
	case pass != nil && requested(pass.Enabled):
		out.HyperV = &libvirtxml.DomainFeatureHyperV{Mode: "passthrough"} // all that the host's KVM has
	}
}

// dedicatedFeatures tell the guest that its processors are not shared, and leave out what would
// interrupt those in real time.
func dedicatedFeatures(vmi *v1.VirtualMachineInstance, out *libvirtxml.DomainFeatureList) {
	if dedicated.Asked(vmi) {
		if out.KVM == nil {
			out.KVM = &libvirtxml.DomainFeatureKVM{}
		}
		out.KVM.HintDedicated = &libvirtxml.DomainFeatureState{State: "on"}
	}
	if dedicated.Realtime(vmi) {
		out.PMU = &libvirtxml.DomainFeatureState{State: "off"}
	}
}

// hyperv are the paravirtual abilities that Windows knows.
func hyperv(spec *v1.FeatureHyperv) *libvirtxml.DomainFeatureHyperV {
	out := &libvirtxml.DomainFeatureHyperV{
		Mode:            "custom",
		Relaxed:         state(spec.Relaxed),
		VAPIC:           state(spec.VAPIC),
		VPIndex:         state(spec.VPIndex),
		Runtime:         state(spec.Runtime),
		Synic:           state(spec.SyNIC),
		Reset:           state(spec.Reset),
		Frequencies:     state(spec.Frequencies),
		ReEnlightenment: state(spec.Reenlightenment),
		IPI:             state(spec.IPI),
		EVMCS:           state(spec.EVMCS),
	}
	if spin := spec.Spinlocks; spin != nil {
		out.Spinlocks = &libvirtxml.DomainFeatureHyperVSpinlocks{DomainFeatureState: *state(&spin.FeatureState)}
		if enabled(spin.Enabled) {
			out.Spinlocks.Retries = 4096
			if spin.Retries != nil {
				out.Spinlocks.Retries = uint(*spin.Retries)
			}
		}
	}
	if timer := spec.SyNICTimer; timer != nil {
		out.STimer = &libvirtxml.DomainFeatureHyperVSTimer{DomainFeatureState: *state(&timer.FeatureState), Direct: state(timer.Direct)}
	}
	if vendor := spec.VendorID; vendor != nil {
		out.VendorId = &libvirtxml.DomainFeatureHyperVVendorId{DomainFeatureState: *state(&vendor.FeatureState), Value: vendor.VendorID}
	}
	if flush := spec.TLBFlush; flush != nil {
		out.TLBFlush = &libvirtxml.DomainFeatureHyperVTLBFlush{
			DomainFeatureState: *state(&flush.FeatureState), Direct: state(flush.Direct), Extended: state(flush.Extended),
		}
	}
	return out
}

// state translates a feature that is on when it is named without a value.
func state(feature *v1.FeatureState) *libvirtxml.DomainFeatureState {
	if feature == nil {
		return nil
	}
	return &libvirtxml.DomainFeatureState{State: onOff(enabled(feature.Enabled))}
}
