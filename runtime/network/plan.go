package network

import (
	"errors"
	"fmt"
	"net/netip"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Pod is what was seen in the pod's network namespace before anything was made there.
type Pod struct {
	// Interface is the pod's own interface, the one with the default route.
	Interface string `json:"interface"`
	MTU       int    `json:"mtu"`
	// MAC is the interface's Ethernet address; empty for a device that has none.
	MAC string `json:"mac,omitempty"`
	// Addresses are the interface's global addresses, the pod's IPs.
	Addresses []netip.Addr `json:"addresses"`
	// IPv4 is the first IPv4 address among them, with the length of its subnet's prefix; invalid for none.
	IPv4 netip.Prefix `json:"ipv4,omitzero"`
	// Routes are those of IPv4 over the interface.
	Routes []Route `json:"routes,omitempty"`
	// DNS and Search are the nameservers and search domains of the pod's resolv.conf.
	DNS    []string `json:"dns,omitempty"`
	Search []string `json:"search,omitempty"`
}

// Plan is all that a pod's network namespace must hold, in the order of making.
type Plan struct {
	Taps    []Tap    `json:"taps,omitempty"`
	Sysctls []Sysctl `json:"sysctls,omitempty"`
	Tables  []Table  `json:"tables,omitempty"`
	Wires   []Wire   `json:"wires,omitempty"`
	// Interfaces tell the launcher what it gets, in the order of the VMI's spec.
	Interfaces []protocol.Interface `json:"interfaces,omitempty"`
}

// Tap is a tap device that lives as long as the namespace.
type Tap struct {
	Name string `json:"name"`
	MTU  int    `json:"mtu"`
	// Queues is the number of queue pairs; the device is multi-queue when it is over 1.
	Queues int `json:"queues"`
	// Owner is the uid and gid that may attach to the device without privilege.
	Owner     int            `json:"owner"`
	Addresses []netip.Prefix `json:"addresses"`
}

// Sysctl is a kernel setting of the namespace, by its path under /proc/sys.
type Sysctl struct {
	Path  string `json:"path"`
	Value string `json:"value"`
}

// Defaults of the network behind the masquerade.
const (
	defaultCIDR     = "10.0.2.0/24"
	defaultIPv6CIDR = "fd10:0:2::/120"
)

// maxQueues is what a tap device takes.
const maxQueues = 256

// New plans the network of vmi in a pod that looks like pod. A VMI without interfaces
// has an empty plan.
func New(vmi *v1.VirtualMachineInstance, pod Pod) (Plan, error) {
	var plan Plan
	networks := map[string]v1.Network{}
	for _, network := range vmi.Spec.Networks {
		networks[network.Name] = network
	}
	for i, nic := range vmi.Spec.Domain.Devices.Interfaces {
		path := fmt.Sprintf("spec.domain.devices.interfaces[%d]", i)
		network, found := networks[nic.Name]
		switch {
		case !found:
			return Plan{}, fmt.Errorf("%s: no network is called %q; add it to spec.networks", path, nic.Name)
		case network.Pod == nil:
			return Plan{}, fmt.Errorf("%s: network %q is not the pod network; only pod networks are connected", path, nic.Name)
		case len(plan.Taps) > 0:
			return Plan{}, fmt.Errorf("%s: a VMI connects to the pod network once; remove this interface", path)
		}
		if err := plan.connect(vmi, nic, *network.Pod, pod); err != nil {
			return Plan{}, fmt.Errorf("planning %s: %w", path, err)
		}
	}
	return plan, nil
}

// connect adds one interface to the plan, by its binding.
func (p *Plan) connect(vmi *v1.VirtualMachineInstance, nic v1.Interface, network v1.PodNetwork, pod Pod) error {
	switch {
	case nic.Masquerade != nil && nic.Bridge != nil:
		return errors.New("it has two bindings, masquerade and bridge; keep one of them")
	case nic.Masquerade != nil:
		return p.masquerade(vmi, nic, network, pod)
	case nic.Bridge != nil:
		return p.bridge(vmi, nic, pod)
	}
	return errors.New("only the bindings masquerade and bridge are supported; set masquerade: {} or bridge: {}")
}

// newTap is the next tap of the plan, without addresses.
func (p *Plan) newTap(vmi *v1.VirtualMachineInstance, nic v1.Interface, pod Pod) Tap {
	return Tap{Name: fmt.Sprintf("tap%d", len(p.Taps)), MTU: pod.MTU, Queues: queues(vmi, nic), Owner: names.QEMUUser}
}

// serveDHCP lets the launcher, which has no privilege, listen on the port of DHCP servers.
var serveDHCP = Sysctl{Path: "net/ipv4/ip_unprivileged_port_start", Value: "0"}

// masquerade adds one interface behind NAT to the plan.
func (p *Plan) masquerade(vmi *v1.VirtualMachineInstance, nic v1.Interface, network v1.PodNetwork, pod Pod) error {
	if len(pod.Addresses) == 0 {
		return errors.New("the pod's interface has no address yet")
	}
	tap := p.newTap(vmi, nic, pod)
	mac, err := MAC(vmi, nic)
	if err != nil {
		return err
	}
	facts := protocol.Interface{Name: nic.Name, Tap: tap.Name, MAC: mac.String(), MTU: pod.MTU, Queues: tap.Queues}
	p.Sysctls = append(p.Sysctls, serveDHCP)
	for _, address := range pod.Addresses {
		facts.PodIPs = append(facts.PodIPs, address.String())
		link, err := linkFor(address, network)
		if err != nil {
			return err
		}
		link.tap, link.pod, link.ports = tap.Name, pod.Interface, nic.Ports
		tap.Addresses = append(tap.Addresses, netip.PrefixFrom(link.gateway, link.bits))
		p.Sysctls = append(p.Sysctls, link.sysctls()...)
		p.Tables = append(p.Tables, link.table())
		if address.Is4() {
			facts.DHCP = &protocol.Lease{
				Address: netip.PrefixFrom(link.guest, link.bits).String(), Gateway: link.gateway.String(),
				DNS: pod.DNS, Search: pod.Search, Hostname: hostname(vmi), Options: dhcpOptions(nic.DHCPOptions),
			}
		}
	}
	p.Taps = append(p.Taps, tap)
	p.Interfaces = append(p.Interfaces, facts)
	return nil
}

// linkFor lays out the network between pod and guest for the family of podIP.
func linkFor(podIP netip.Addr, network v1.PodNetwork) (link, error) {
	field, cidr := "vmNetworkCIDR", network.VMNetworkCIDR
	if cidr == "" {
		cidr = defaultCIDR
	}
	if podIP.Is6() {
		field, cidr = "vmIPv6NetworkCIDR", network.VMIPv6NetworkCIDR
		if cidr == "" {
			cidr = defaultIPv6CIDR
		}
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return link{}, fmt.Errorf("%s: %w; write it as %s", field, err, defaultCIDR)
	}
	prefix = prefix.Masked()
	gateway := prefix.Addr().Next()
	guest := gateway.Next()
	if prefix.Addr().Is4() != podIP.Is4() || !prefix.Contains(guest.Next()) {
		return link{}, fmt.Errorf("%s: %s has no room for a gateway and a guest of the family of %s", field, cidr, podIP)
	}
	return link{podIP: podIP, gateway: gateway, guest: guest, bits: prefix.Bits()}, nil
}

func hostname(vmi *v1.VirtualMachineInstance) string {
	if vmi.Spec.Hostname != "" {
		return vmi.Spec.Hostname
	}
	return dnsLabel(vmi.Name)
}

// queues is one per virtual CPU with multi-queue on a virtio card, else one.
func queues(vmi *v1.VirtualMachineInstance, nic v1.Interface) int {
	multi := vmi.Spec.Domain.Devices.NetworkInterfaceMultiQueue
	if multi == nil || !*multi || (nic.Model != "" && nic.Model != v1.VirtIO) {
		return 1
	}
	return max(1, min(virtualCPUs(vmi.Spec.Domain), maxQueues))
}

// virtualCPUs is the CPU count of the guest: the topology's, else the CPU limit or
// request rounded up, else 1.
func virtualCPUs(domain v1.DomainSpec) int {
	if cpu := domain.CPU; cpu != nil && (cpu.Cores > 0 || cpu.Sockets > 0 || cpu.Threads > 0) {
		return int(max(cpu.Cores, 1) * max(cpu.Sockets, 1) * max(cpu.Threads, 1))
	}
	if limit := domain.Resources.Limits.Cpu(); !limit.IsZero() {
		return int(limit.Value())
	}
	return max(1, int(domain.Resources.Requests.Cpu().Value()))
}
