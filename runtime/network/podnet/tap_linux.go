package podnet

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/network"
)

// tunDevice makes tap devices in the namespace of the thread that opens it.
const tunDevice = "/dev/net/tun"

// ensureTap makes the device unless it is there, and gives it what it lacks.
func ensureTap(tap network.Tap) error {
	link, err := netlink.LinkByName(tap.Name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		if err := createTap(tap); err != nil {
			return err
		}
		link, err = netlink.LinkByName(tap.Name)
	}
	if err != nil {
		return fmt.Errorf("finding it: %w", err)
	}
	if tap.MTU > 0 && link.Attrs().MTU != tap.MTU {
		if err := netlink.LinkSetMTU(link, tap.MTU); err != nil {
			return fmt.Errorf("setting its MTU to %d: %w", tap.MTU, err)
		}
	}
	for _, prefix := range tap.Addresses {
		address := &netlink.Addr{IPNet: &net.IPNet{
			IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen()),
		}}
		if prefix.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD // nobody else is on this link
		}
		if err := netlink.AddrReplace(link, address); err != nil {
			return fmt.Errorf("giving it address %s: %w", prefix, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting it up: %w", err)
	}
	return nil
}

// createTap makes a device that stays when its descriptor is closed and that its owner
// may attach to. Its flags are those with which QEMU attaches.
func createTap(tap network.Tap) error {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening %s (is the tun module loaded?): %w", tunDevice, err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(tap.Name)
	if err != nil {
		return fmt.Errorf("naming it: %w", err)
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if tap.Queues > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	request.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("creating it: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, tap.Owner); err != nil {
		return fmt.Errorf("giving it to uid %d: %w", tap.Owner, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("keeping it: %w", err)
	}
	return nil
}
