package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/slipway-vm/slipway/runtime/network"
)

// ErrNoInterface says that the pod has no network of its own that a guest could use.
var ErrNoInterface = errors.New("no interface with a default route and none called eth0")

// defaultInterface is what pods' interfaces are called where no route tells.
const defaultInterface = "eth0"

// Inspect reads the pod's interface, its MTU and addresses from the namespace ns.
func Inspect(ns *os.File) (network.Pod, error) {
	var pod network.Pod
	err := within(ns, func() error {
		link, err := podLink()
		if err != nil {
			return err
		}
		pod.Interface, pod.MTU = link.Attrs().Name, link.Attrs().MTU
		addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("listing addresses of %s: %w", pod.Interface, err)
		}
		for _, address := range addresses {
			if ip, ok := netip.AddrFromSlice(address.IP); ok && ip.Unmap().IsGlobalUnicast() {
				pod.Addresses = append(pod.Addresses, ip.Unmap())
			}
		}
		return nil
	})
	if err != nil {
		return network.Pod{}, fmt.Errorf("inspecting the pod's network: %w", err)
	}
	return pod, nil
}

// podLink finds the interface of the default route, of IPv4 first.
func podLink() (netlink.Link, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(nil, family)
		if err != nil {
			return nil, fmt.Errorf("listing routes: %w", err)
		}
		for _, route := range routes {
			if route.LinkIndex > 0 && (route.Dst == nil || route.Dst.IP.IsUnspecified()) {
				link, err := netlink.LinkByIndex(route.LinkIndex)
				if err != nil {
					return nil, fmt.Errorf("finding the default route's interface: %w", err)
				}
				return link, nil
			}
		}
	}
	link, err := netlink.LinkByName(defaultInterface)
	if err != nil {
		return nil, ErrNoInterface
	}
	return link, nil
}
