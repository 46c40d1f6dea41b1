package virtualmachineinstance

import (
	"fmt"
	"regexp"
	"time"
	_ "time/tzdata" // the image has no zones

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// deviceNames are names that libvirt takes as a device's alias.
var deviceNames = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// aliases checks the names of devices: libvirt knows all of them by these, whatever they are.
func aliases(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	devices, at := &spec.Domain.Devices, path.Child("domain", "devices")
	taken := map[string]*field.Path{}
	for i := range devices.Disks {
		taken[devices.Disks[i].Name] = at.Child("disks").Index(i).Child("name")
	}
	check := func(name string, here *field.Path) {
		switch other := taken[name]; {
		case name == "":
		case !deviceNames.MatchString(name):
			errs = append(errs, field.Invalid(here, name, "may have letters, digits and _.- only"))
		case other != nil:
			errs = append(errs, field.Invalid(here, name, fmt.Sprintf("is the name of %s, too; devices need names of their own", other)))
		default:
			taken[name] = here
		}
	}
	for i := range devices.Inputs {
		check(devices.Inputs[i].Name, at.Child("inputs").Index(i).Child("name"))
	}
	if devices.Watchdog != nil {
		check(devices.Watchdog.Name, at.Child("watchdog", "name"))
	}
	if devices.Sound != nil {
		check(devices.Sound.Name, at.Child("sound", "name"))
	}
	seen := map[string]bool{}
	for i := range devices.Interfaces {
		// Of two interfaces of a name the check of interfaces tells.
		if name := devices.Interfaces[i].Name; !seen[name] {
			seen[name] = true
			check(name, at.Child("interfaces").Index(i).Child("name"))
		}
	}
	return errs
}

func inputs(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, input := range spec.Domain.Devices.Inputs {
		at := path.Child("domain", "devices", "inputs").Index(i)
		if input.Bus != virtv1.InputBusVirtio && input.Bus != virtv1.InputBusUSB {
			errs = append(errs, field.Invalid(at.Child("bus"), input.Bus, "Input device can have only virtio or usb bus."))
		}
		if input.Type != virtv1.InputTypeTablet && input.Type != virtv1.InputTypeKeyboard {
			errs = append(errs, field.Invalid(at.Child("type"), input.Type, "Input device can have only tablet or keyboard type."))
		}
	}
	return errs
}

// panicDevices checks that there is one of each model; isa is what a device without one is.
func panicDevices(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[virtv1.PanicDeviceModel]bool{}
	for i, device := range spec.Domain.Devices.PanicDevices {
		model := virtv1.Isa
		if device.Model != nil {
			model = *device.Model
		}
		if seen[model] {
			errs = append(errs, field.Duplicate(path.Child("domain", "devices", "panicDevices").Index(i).Child("model"), model))
		}
		seen[model] = true
	}
	return errs
}

func clock(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	c := spec.Domain.Clock
	if c == nil || c.Timezone == nil {
		return nil
	}
	if name := string(*c.Timezone); name != "" && name != "Local" { // which are the program's own
		if _, err := time.LoadLocation(name); err == nil {
			return nil
		}
	}
	return field.ErrorList{field.Invalid(path.Child("domain", "clock", "timezone"), *c.Timezone, "must be the name of a time zone such as Europe/Berlin")}
}
