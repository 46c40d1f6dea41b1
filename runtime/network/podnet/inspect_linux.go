package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/network"
)

// ErrNoInterface says that the pod has no network of its own that a guest could use.
var ErrNoInterface = errors.New("no interface with a default route and none called eth0")

// defaultInterface is what pods' interfaces are called where no route tells.
const defaultInterface = "eth0"

// Inspect reads the pod's interface, its MTU, addresses and routes from the namespace ns.
func Inspect(ns *os.File) (network.Pod, error) {
	var pod network.Pod
	err := within(ns, func() error {
		link, err := podLink()
		if err != nil {
			return err
		}
		pod.Interface, pod.MTU, pod.MAC = link.Attrs().Name, link.Attrs().MTU, link.Attrs().HardwareAddr.String()
		addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("listing addresses of %s: %w", pod.Interface, err)
		}
		for _, address := range addresses {
			ip, ok := netip.AddrFromSlice(address.IP)
			if ip = ip.Unmap(); !ok || !ip.IsGlobalUnicast() {
				continue
			}
			pod.Addresses = append(pod.Addresses, ip)
			if length, _ := address.Mask.Size(); ip.Is4() && !pod.IPv4.IsValid() {
				pod.IPv4 = netip.PrefixFrom(ip, length)
			}
		}
		pod.Routes, err = routesOver(link)
		return err
	})
	if err != nil {
		return network.Pod{}, fmt.Errorf("inspecting the pod's network: %w", err)
	}
	return pod, nil
}

// routesOver are the routes of IPv4 over link alone.
func routesOver(link netlink.Link) ([]network.Route, error) {
	all, err := netlink.RouteList(link, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("listing routes over %s: %w", link.Attrs().Name, err)
	}
	var routes []network.Route
	for _, one := range all {
		if one.Type != unix.RTN_UNICAST || one.Via != nil {
			continue
		}
		route := network.Route{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
		if one.Dst != nil {
			to, _ := netip.AddrFromSlice(one.Dst.IP.To4())
			length, _ := one.Dst.Mask.Size()
			route.To = netip.PrefixFrom(to, length)
		}
		if via, ok := netip.AddrFromSlice(one.Gw.To4()); ok {
			route.Via = via
		}
		routes = append(routes, route)
	}
	return routes, nil
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
