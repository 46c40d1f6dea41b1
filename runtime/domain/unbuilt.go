package domain

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
)

// refuseUnbuilt names the first field of the VMI that would change its virtual
// machine but that no part of this package builds. Admission refuses them earlier;
// this keeps an object that went around it from running as something else.
func refuseUnbuilt(vmi *v1.VirtualMachineInstance) error {
	spec := &vmi.Spec.Domain
	devices := &spec.Devices
	unbuilt := []struct {
		path string
		set  bool
	}{
		{"memory.hugepages", spec.Memory != nil && spec.Memory.Hugepages != nil},
		{"cpu.dedicatedCpuPlacement", spec.CPU != nil && spec.CPU.DedicatedCPUPlacement},
		{"cpu.numa", spec.CPU != nil && spec.CPU.NUMA != nil},
		{"cpu.realtime", spec.CPU != nil && spec.CPU.Realtime != nil},
		{"cpu.isolateEmulatorThread", spec.CPU != nil && spec.CPU.IsolateEmulatorThread},
		{"firmware.acpi", spec.Firmware != nil && spec.Firmware.ACPI != nil},
		{"features.hypervPassthrough", spec.Features != nil && spec.Features.HypervPassthrough != nil && requested(spec.Features.HypervPassthrough.Enabled)},
		{"launchSecurity", spec.LaunchSecurity != nil},
		{"devices.gpus", len(devices.GPUs) > 0},
		{"devices.hostDevices", len(devices.HostDevices) > 0},
		{"devices.filesystems", len(devices.Filesystems) > 0},
	}
	for _, field := range unbuilt {
		if field.set {
			return fmt.Errorf("spec.domain.%s is not supported yet; remove it from %s/%s", field.path, vmi.Namespace, vmi.Name)
		}
	}
	return nil
}
