package network

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Wire joins the pod's interface and a guest's tap: what comes in at one goes out at the
// other, past the pod's own stack. The pod's interface keeps its name and addresses, which the
// kubelet and the pod's network know. What the guest sends to DHCP servers stays in the pod.
type Wire struct {
	Pod string `json:"pod"`
	Tap string `json:"tap"`
	// Promiscuous says that the guest's hardware address is not the pod's, which a network card has to be told.
	Promiscuous bool `json:"promiscuous,omitempty"`
}

// Route is a way over the pod's interface.
type Route struct {
	To netip.Prefix `json:"to"`
	// Via is the next router; invalid where To is on the link.
	Via netip.Addr `json:"via,omitzero"`
}

// leaseServer is the DHCP server's address on the tap of a guest that has the pod's address. It
// is link-local, and nobody else sees it.
var leaseServer = netip.MustParseAddr("169.254.75.10")

// bridge adds one interface whose guest has the pod's IPv4 address, and its hardware address
// unless the spec names another. Other addresses of the pod are not the guest's: DHCP brings one.
func (p *Plan) bridge(vmi *v1.VirtualMachineInstance, nic v1.Interface, pod Pod) error {
	switch {
	case len(pod.Addresses) == 0:
		return errors.New("the pod's interface has no address yet")
	case !pod.IPv4.IsValid():
		return errors.New("the pod has no IPv4 address, which the bridge binding needs; use masquerade: {}")
	}
	mac, err := bridgeMAC(nic, pod)
	if err != nil {
		return err
	}
	tap := p.newTap(vmi, nic, pod)
	tap.Addresses = []netip.Prefix{host(leaseServer)}
	gateway, routes := leaseRoutes(pod)
	p.Taps = append(p.Taps, tap)
	p.Wires = append(p.Wires, Wire{Pod: pod.Interface, Tap: tap.Name, Promiscuous: mac.String() != pod.MAC})
	p.Sysctls = append(p.Sysctls, serveDHCP)
	p.Sysctls = append(p.Sysctls, hearGuest(tap.Name)...)
	p.Interfaces = append(p.Interfaces, protocol.Interface{
		Name: nic.Name, Tap: tap.Name, MAC: mac.String(), MTU: pod.MTU, Queues: tap.Queues, PodIPs: []string{pod.IPv4.Addr().String()},
		DHCP: &protocol.Lease{
			Address: pod.IPv4.String(), Gateway: gateway, Server: leaseServer.String(), Routes: routes,
			DNS: pod.DNS, Search: pod.Search, Hostname: hostname(vmi), Options: dhcpOptions(nic.DHCPOptions),
		},
	})
	return nil
}

// hearGuest lets the DHCP server hear a guest that renews its lease: its source address is one of the
// pod itself, and the way back to it is not over the tap.
func hearGuest(tap string) []Sysctl {
	return []Sysctl{
		{Path: "net/ipv4/conf/" + tap + "/accept_local", Value: "1"},
		// The stricter one of all and tap counts; nothing else comes in to the pod's stack.
		{Path: "net/ipv4/conf/all/rp_filter", Value: "0"},
		{Path: "net/ipv4/conf/" + tap + "/rp_filter", Value: "0"},
	}
}

// leaseRoutes are the pod's default gateway, empty for none, and the routes that the guest must be
// told because gateway and subnet do not say them: then all of them (RFC 3442), in an
// order in which each router is on the way that the routes before it make.
func leaseRoutes(pod Pod) (gateway string, routes []protocol.Route) {
	sorted := slices.DeleteFunc(slices.Clone(pod.Routes), func(route Route) bool {
		return !route.Via.IsValid() && route.To.Masked() == pod.IPv4.Masked()
	})
	slices.SortStableFunc(sorted, func(a, b Route) int {
		return cmp.Or(cmp.Compare(hops(a), hops(b)), cmp.Compare(b.To.Bits(), a.To.Bits()))
	})
	enough := true
	for _, route := range sorted {
		told := protocol.Route{To: route.To.String()}
		if route.Via.IsValid() {
			told.Via = route.Via.String()
		}
		isDefault := route.To.Bits() == 0 && route.Via.IsValid()
		if isDefault && gateway == "" {
			gateway = told.Via
		}
		enough = enough && isDefault && pod.IPv4.Contains(route.Via)
		routes = append(routes, told)
	}
	if enough {
		return gateway, nil
	}
	return gateway, routes
}

// hops is the number of routers that route names.
func hops(route Route) int {
	if route.Via.IsValid() {
		return 1
	}
	return 0
}
