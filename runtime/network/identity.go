package network

import (
	"fmt"
	"net"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/guestid"
)

// MAC returns the guest's hardware address on nic behind masquerade: the spec's, or one derived
// from the VMI's namespace, name and interface, so that a VM keeps it when it starts again.
// Guests behind masquerade share no segment, so equal addresses could not clash.
func MAC(vmi *v1.VirtualMachineInstance, nic v1.Interface) (net.HardwareAddr, error) {
	if nic.MacAddress != "" {
		return specMAC(nic)
	}
	return guestid.MAC(vmi.Namespace, vmi.Name, nic.Name), nil
}

// bridgeMAC returns the guest's hardware address on nic on a bridge: the spec's, or the pod's, which the
// pod's network may have written down.
func bridgeMAC(nic v1.Interface, pod Pod) (net.HardwareAddr, error) {
	own, err := net.ParseMAC(pod.MAC)
	switch {
	case err != nil || len(own) != ethernetLength:
		return nil, fmt.Errorf("the pod's interface %s is no Ethernet device, which the bridge binding needs; use masquerade: {}", pod.Interface)
	case nic.MacAddress != "":
		return specMAC(nic)
	}
	return own, nil
}

// ethernetLength is the length of an Ethernet address in bytes.
const ethernetLength = 6

func specMAC(nic v1.Interface) (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(nic.MacAddress)
	if err != nil || len(mac) != ethernetLength {
		return nil, fmt.Errorf("macAddress %q is not an Ethernet address; write it as 02:00:00:00:00:01", nic.MacAddress)
	}
	return mac, nil
}

// maxLabel is the length of a DNS label.
const maxLabel = 63

// dnsLabel makes a host name of an object's name, which may hold dots and be longer.
func dnsLabel(name string) string {
	label, _, _ := strings.Cut(name, ".")
	if len(label) > maxLabel {
		label = label[:maxLabel]
	}
	return strings.TrimRight(label, "-")
}
