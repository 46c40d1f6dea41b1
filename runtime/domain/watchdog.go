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
	if spec.I6300ESB == nil {
		return fmt.Errorf("watchdog %s: this machine has only i6300esb", spec.Name)
	}
	action := spec.I6300ESB.Action
	if action == "" {
		action = v1.WatchdogActionReset
	}
	domain.Devices.Watchdogs = []libvirtxml.DomainWatchdog{{
		Model: "i6300esb", Action: string(action), Alias: &libvirtxml.DomainAlias{Name: AliasPrefix + spec.Name},
	}}
	return nil
}
