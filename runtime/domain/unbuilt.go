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
		{"launchSecurity", spec.LaunchSecurity != nil},
		{"devices.gpus", len(devices.GPUs) > 0},
		{"devices.hostDevices", len(devices.HostDevices) > 0},
	}
	for _, field := range unbuilt {
		if field.set {
			return fmt.Errorf("spec.domain.%s is not supported yet; remove it from %s/%s", field.path, vmi.Namespace, vmi.Name)
		}
	}
	return nil
}
