package virtualmachineinstance

import (
	"fmt"
	"net"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

func interfaces(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("domain", "devices", "interfaces")
	known := map[string]bool{}
	for _, network := range spec.Networks {
		known[network.Name] = true
	}
	seen, ports := map[string]bool{}, map[string]bool{}
	for i, iface := range spec.Domain.Devices.Interfaces {
		here := at.Index(i)
		if seen[iface.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), iface.Name))
		}
		seen[iface.Name] = true
		if !known[iface.Name] {
			errs = append(errs, field.Invalid(here.Child("name"), iface.Name, fmt.Sprintf("%s '%s' not found.", here.Child("name"), iface.Name)))
		}
		errs = append(errs, binding(iface, here)...)
		if iface.MacAddress != "" {
			if mac, err := net.ParseMAC(iface.MacAddress); err != nil || len(mac) != 6 {
				errs = append(errs, field.Invalid(here.Child("macAddress"), iface.MacAddress, fmt.Sprintf("interface %s has malformed MAC address (%s).", here.Child("name"), iface.MacAddress)))
			} else if mac[0]&1 == 1 {
				errs = append(errs, field.Invalid(here.Child("macAddress"), iface.MacAddress, "is a multicast address"))
			}
		}
		errs = append(errs, dhcpOptions(iface.DHCPOptions, here.Child("dhcpOptions"))...)
		errs = append(errs, portsOf(iface, here.Child("ports"), ports)...)
	}
	return errs
}

// binding checks that an interface has one of the bindings that there are.
func binding(iface virtv1.Interface, at *field.Path) field.ErrorList {
	switch {
	case iface.Masquerade == nil && iface.Bridge == nil:
		return field.ErrorList{field.Required(at.Child("masquerade"), "the interface has no binding that Slipway has; write masquerade: {} or bridge: {}")}
	case iface.Masquerade != nil && iface.Bridge != nil:
		return field.ErrorList{field.Forbidden(at.Child("bridge"), "the interface has the binding masquerade, too; remove one of them")}
	}
	return nil
}

// bridges refuses bridges to the pod network, in the field's words.
func bridges(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, iface := range spec.Domain.Devices.Interfaces {
		if iface.Bridge != nil && onPodNetwork(spec) {
			at := path.Child("domain", "devices", "interfaces").Index(i).Child("name")
			errs = append(errs, field.Invalid(at, iface.Name, "Bridge on pod network configuration is not enabled under kubevirt-config"))
		}
	}
	return errs
}

func portsOf(iface virtv1.Interface, at *field.Path, names map[string]bool) field.ErrorList {
	var errs field.ErrorList
	for i, port := range iface.Ports {
		here := at.Index(i)
		if port.Port < 1 || port.Port > 65535 {
			errs = append(errs, field.Invalid(here.Child("port"), port.Port, "Port field must be in range 0 < x < 65536."))
		}
		switch port.Protocol {
		case "", "TCP", "UDP":
		default:
			errs = append(errs, field.NotSupported(here.Child("protocol"), port.Protocol, []string{"TCP", "UDP"}))
		}
		if port.Name == "" {
			continue
		}
		if names[port.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), port.Name))
		}
		names[port.Name] = true
		for _, message := range validation.IsValidPortName(port.Name) {
			errs = append(errs, field.Invalid(here.Child("name"), port.Name, message))
		}
	}
	return errs
}

func networks(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("networks")
	connected := map[string]virtv1.Interface{}
	for _, iface := range spec.Domain.Devices.Interfaces {
		connected[iface.Name] = iface
	}
	seen, podNetworks := map[string]bool{}, 0
	for i, network := range spec.Networks {
		here := at.Index(i)
		if seen[network.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), network.Name))
		}
		seen[network.Name] = true
		iface, found := connected[network.Name]
		if !found {
			errs = append(errs, field.Required(here.Child("name"), fmt.Sprintf("%s '%s' not found.", here.Child("name"), network.Name)))
		}
		if network.Pod == nil {
			errs = append(errs, field.Required(here.Child("pod"), "should have a network type; write pod: {}"))
			continue
		}
		if podNetworks++; podNetworks > 1 {
			errs = append(errs, field.Duplicate(here, "more than one interface is connected to a pod network"))
		}
		errs = append(errs, cidrs(network.Pod, iface, here.Child("pod"))...)
	}
	return errs
}

// cidrs checks the guest's own networks behind the pod's address. A guest on a bridge has none.
func cidrs(pod *virtv1.PodNetwork, iface virtv1.Interface, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, cidr := range []struct {
		name, value string
		four        bool
	}{{"vmNetworkCIDR", pod.VMNetworkCIDR, true}, {"vmIPv6NetworkCIDR", pod.VMIPv6NetworkCIDR, false}} {
		if cidr.value == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(cidr.value)
		switch {
		case iface.Bridge != nil && iface.Masquerade == nil:
			errs = append(errs, field.Forbidden(at.Child(cidr.name), "a guest on a bridge has its pod's address; remove it"))
		case err != nil || prefix.Addr().Is4() != cidr.four:
			errs = append(errs, field.Invalid(at.Child(cidr.name), cidr.value, "is not a network of its family, such as 10.0.2.0/24"))
		case prefix.Addr().BitLen()-prefix.Bits() < 2:
			errs = append(errs, field.Invalid(at.Child(cidr.name), cidr.value, "has no room for a gateway and a guest"))
		}
	}
	return errs
}
