package domain

import (
	"fmt"
	"strconv"
	"time"
	_ "time/tzdata" // the launcher image has no zones

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// clock sets the guest's clock: UTC unless another is asked for. QEMU knows no zones, so one is the seconds by which it
// differs from UTC when the guest starts; a guest that keeps its clock in local time changes it with the season by itself. A VMI without a
// clock gets timers that suit Linux: missed ticks made up for, and no HPET where the
// guest can do without.
func clock(in Input, domain *libvirtxml.Domain) error {
	out := &libvirtxml.DomainClock{Offset: "utc"}
	domain.Clock = out
	spec := in.VMI.Spec.Domain.Clock
	if spec == nil {
		out.Timer = []libvirtxml.DomainTimer{
			{Name: "rtc", TickPolicy: "catchup"},
			{Name: "pit", TickPolicy: "delay"},
			{Name: "hpet", Present: yesNo(needsHPET(in))},
		}
		return nil
	}
	switch {
	case spec.Timezone != nil:
		zone, err := time.LoadLocation(string(*spec.Timezone))
		if err != nil {
			return fmt.Errorf("spec.domain.clock.timezone: %w", err)
		}
		_, seconds := in.Now.In(zone).Zone()
		out.Offset, out.Basis, out.Adjustment = "variable", "utc", strconv.Itoa(seconds)
	case spec.UTC != nil && spec.UTC.OffsetSeconds != nil:
		out.Offset, out.Basis, out.Adjustment = "variable", "utc", strconv.Itoa(*spec.UTC.OffsetSeconds)
	}
	if spec.Timer != nil {
		out.Timer = timers(spec.Timer, in.KVM)
	}
	return nil
}

// needsHPET says whether Linux may stand still without an HPET. It gives the TSC up where a
// vCPU seems to have waited for the host, as those of an emulated guest do on a busy one.
// With kvmclock it never asks; with an HPET it has another look; without either it counts
// ticks early at boot, when none may come. A guest of one vCPU has no second to compare.
func needsHPET(in Input) bool { return !in.KVM && VCPUs(in.VMI) > 1 }

// timers are those named by the VMI; kvm and hyperv are KVM's own.
func timers(spec *v1.Timer, kvm bool) []libvirtxml.DomainTimer {
	var out []libvirtxml.DomainTimer
	if t := spec.RTC; t != nil {
		out = append(out, libvirtxml.DomainTimer{Name: "rtc", TickPolicy: string(t.TickPolicy), Track: string(t.Track), Present: yesNo(enabled(t.Enabled))})
	}
	if t := spec.PIT; t != nil {
		out = append(out, libvirtxml.DomainTimer{Name: "pit", TickPolicy: string(t.TickPolicy), Present: yesNo(enabled(t.Enabled))})
	}
	if t := spec.HPET; t != nil {
		out = append(out, libvirtxml.DomainTimer{Name: "hpet", TickPolicy: string(t.TickPolicy), Present: yesNo(enabled(t.Enabled))})
	}
	if t := spec.KVM; t != nil && kvm {
		out = append(out, libvirtxml.DomainTimer{Name: "kvmclock", Present: yesNo(enabled(t.Enabled))})
	}
	if t := spec.Hyperv; t != nil && kvm {
		out = append(out, libvirtxml.DomainTimer{Name: "hypervclock", Present: yesNo(enabled(t.Enabled))})
	}
	return out
}
