package domain

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

func watchdog(in Input, domain *libvirtxml.Domain) error {
	spec := in.VMI.Spec.Domain.Devices.Watchdog
	if spec == nil {
		return nil
	}
	if spec.Diag288 != nil {
		return fmt.Errorf("watchdog %s: this machine has only i6300esb", spec.Name)
	}
	action := v1.WatchdogActionReset
	if device := spec.I6300ESB; device != nil && device.Action != "" {
		action = device.Action
	}
	out := libvirtxml.DomainWatchdog{Model: "i6300esb", Action: string(action)}
	if spec.Name != "" {
		out.Alias = &libvirtxml.DomainAlias{Name: AliasPrefix + spec.Name}
	}
	domain.Devices.Watchdogs = []libvirtxml.DomainWatchdog{out}
	return nil
}
