package podnet

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/network"
)

// Priorities of the filters, of which the lower one is asked first.
const (
	priorityDHCP = 1
	priorityAll  = 2
)

// ensureWire makes what comes in at one end of wire go out at the other, unless it does.
func ensureWire(wire network.Wire) error {
	pod, err := netlink.LinkByName(wire.Pod)
	if err != nil {
		return fmt.Errorf("finding %s: %w", wire.Pod, err)
	}
	tap, err := netlink.LinkByName(wire.Tap)
	if err != nil {
		return fmt.Errorf("finding %s: %w", wire.Tap, err)
	}
	if wire.Promiscuous {
		if err := netlink.SetPromiscOn(pod); err != nil {
			return fmt.Errorf("making %s promiscuous: %w", wire.Pod, err)
		}
	}
	for _, link := range []netlink.Link{tap, pod} {
		if err := ensureIngress(link); err != nil {
			return err
		}
	}
	for _, filter := range []*netlink.U32{keepDHCP(tap), redirect(tap, pod), redirect(pod, tap)} {
		if err := ensureFilter(filter); err != nil {
			return err
		}
	}
	return nil
}

// ensureIngress gives link a place for filters of what comes in; a pod's network may have made one.
func ensureIngress(link netlink.Link) error {
	err := netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding a queue for what comes in at %s (is the kernel module sch_ingress there?): %w", link.Attrs().Name, err)
	}
	return nil
}

// ensureFilter adds filter unless one of its priority does the same. One that sends to a device which
// was there before goes.
func ensureFilter(filter *netlink.U32) error {
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: filter.LinkIndex}}
	present, err := netlink.FilterList(link, filter.Parent)
	if err != nil {
		return fmt.Errorf("listing filters: %w", err)
	}
	for _, one := range present {
		if one.Attrs().Priority != filter.Priority {
			continue
		}
		if same(one, filter) {
			return nil
		}
		if err := netlink.FilterDel(one); err != nil {
			return fmt.Errorf("removing an old filter: %w", err)
		}
	}
	if err := netlink.FilterAdd(filter); err != nil {
		return fmt.Errorf("adding a filter (are the kernel modules cls_u32 and act_mirred there?): %w", err)
	}
	return nil
}

func same(present netlink.Filter, wanted *netlink.U32) bool {
	u32, ok := present.(*netlink.U32)
	return ok && u32.ClassId == wanted.ClassId && target(u32) == target(wanted)
}

// target is the index of the device that filter sends to; 0 for none.
func target(filter *netlink.U32) int {
	for _, action := range filter.Actions {
		if mirred, ok := action.(*netlink.MirredAction); ok {
			return mirred.Ifindex
		}
	}
	return 0
}

// redirect sends all that comes in at from out at to.
func redirect(from, to netlink.Link) *netlink.U32 {
	return &netlink.U32{
		FilterAttrs: attrs(from, priorityAll, unix.ETH_P_ALL),
		Actions:     []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
	}
}

// keepDHCP lets what the guest sends to DHCP servers come in to the pod's stack: a filter that does nothing ends the search.
func keepDHCP(tap netlink.Link) *netlink.U32 {
	return &netlink.U32{
		FilterAttrs: attrs(tap, priorityDHCP, unix.ETH_P_IP),
		ClassId:     netlink.MakeHandle(1, 1),
		Sel:         &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Keys: toDHCPServers},
	}
}

// toDHCPServers matches UDP to port 67 in the first fragment of an IPv4 packet without options. Offsets are in bytes
// from the packet's begin.
var toDHCPServers = []netlink.TcU32Key{
	{Off: 0, Mask: 0x0f000000, Val: 0x05000000},
	{Off: 4, Mask: 0x00001fff, Val: 0},
	{Off: 8, Mask: 0x00ff0000, Val: unix.IPPROTO_UDP << 16},
	{Off: 20, Mask: 0x0000ffff, Val: 67},
}

func attrs(link netlink.Link, priority, protocol uint16) netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: priority, Protocol: protocol,
	}
}
