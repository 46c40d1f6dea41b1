// Package dhcp answers the guest's DHCP requests on a tap with the one lease that
// the handler computed. It runs in the launcher, so leases outlive the handler.
package dhcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/rfc1035label"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

const (
	serverPort, clientPort = 67, 68
	maxPacket              = 1500
	// leaseTime is practically for ever: the address is the guest's for the pod's life.
	leaseTime = 365 * 24 * time.Hour
)

// Server answers on one tap.
type Server struct {
	device  string
	offer   offer
	socket  net.PacketConn
	granted func()
	log     *slog.Logger
}

// offer is a lease in the packet's own types.
type offer struct {
	mac     net.HardwareAddr
	address netip.Prefix
	gateway net.IP // nil for none
	server  net.IP
	routes  dhcpv4.Routes
	// broadcast says that answers to the lease's address would not leave the pod, whose own it is.
	broadcast bool
	dns       []net.IP
	search    []string
	host      string
	mtu       int
	more      []protocol.DHCPOption
}

// Listen binds to the tap of link, which must have a lease. granted is called after
// each acknowledged lease.
func Listen(ctx context.Context, link protocol.Interface, granted func(), log *slog.Logger) (*Server, error) {
	offer, err := parse(link)
	if err != nil {
		return nil, fmt.Errorf("reading the lease of interface %s: %w", link.Name, err)
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var bindErr error
		err := raw.Control(func(fd uintptr) { bindErr = bindTo(int(fd), link.Tap) })
		return errors.Join(err, bindErr)
	}}
	socket, err := config.ListenPacket(ctx, "udp4", fmt.Sprintf("0.0.0.0:%d", serverPort))
	if err != nil {
		return nil, fmt.Errorf("listening for DHCP on %s: %w", link.Tap, err)
	}
	return &Server{device: link.Tap, offer: offer, socket: socket, granted: granted, log: log}, nil
}

// bindTo limits a socket to one device. Checksums are left out (0 is valid in IPv4):
// on a tap they would be partial, and old clients drop such packets.
func bindTo(fd int, device string) error {
	for option, value := range map[int]int{unix.SO_REUSEADDR: 1, unix.SO_BROADCAST: 1, unix.SO_NO_CHECK: 1} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, value); err != nil {
			return fmt.Errorf("setting socket option %d: %w", option, err)
		}
	}
	if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, device); err != nil {
		return fmt.Errorf("binding to %s: %w", device, err)
	}
	return nil
}

// Serve answers until ctx is done.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.socket.Close() })
	defer stop()
	defer func() { _ = s.socket.Close() }()
	buffer := make([]byte, maxPacket)
	for {
		n, _, err := s.socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading DHCP requests on %s: %w", s.device, err)
		}
		request, err := dhcpv4.FromBytes(buffer[:n])
		if err != nil {
			s.log.Debug("Ignoring a malformed DHCP packet", "device", s.device, "err", err)
			continue
		}
		s.answer(request)
	}
}

func (s *Server) answer(request *dhcpv4.DHCPv4) {
	reply, err := s.offer.reply(request)
	if err != nil {
		s.log.Warn("Failed to answer a DHCP request", "device", s.device, "err", err)
		return
	}
	if reply == nil {
		return
	}
	if _, err := s.socket.WriteTo(reply.ToBytes(), s.offer.target(request, reply)); err != nil {
		s.log.Warn("Failed to send a DHCP reply", "device", s.device, "err", err)
		return
	}
	s.log.Info("Answered a DHCP request", "device", s.device, "type", reply.MessageType().String(), "address", s.offer.address.Addr().String())
	if reply.MessageType() == dhcpv4.MessageTypeAck && s.granted != nil {
		s.granted()
	}
}

// target is where the answer to request goes.
func (o offer) target(request, reply *dhcpv4.DHCPv4) *net.UDPAddr {
	target := &net.UDPAddr{IP: net.IPv4bcast, Port: clientPort}
	if ip := request.ClientIPAddr; !o.broadcast && ip != nil && !ip.IsUnspecified() && reply.MessageType() == dhcpv4.MessageTypeAck {
		target.IP = ip
	}
	return target
}

// reply is the answer to request: nil for what is not for this server.
func (o offer) reply(request *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, error) {
	if request.OpCode != dhcpv4.OpcodeBootRequest || request.ClientHWAddr.String() != o.mac.String() {
		return nil, nil
	}
	server := o.server
	var kind dhcpv4.MessageType
	switch request.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
	case dhcpv4.MessageTypeRequest:
		kind = dhcpv4.MessageTypeAck
		if chosen := request.ServerIdentifier(); chosen != nil && !chosen.Equal(server) {
			return nil, nil // another server's offer was taken
		}
		if wanted := o.wanted(request); wanted != nil && !wanted.Equal(o.ip()) {
			return wrapped(dhcpv4.NewReplyFromRequest(request, dhcpv4.WithMessageType(dhcpv4.MessageTypeNak), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server))))
		}
	case dhcpv4.MessageTypeInform:
		kind = dhcpv4.MessageTypeAck
	default:
		return nil, nil
	}
	return wrapped(dhcpv4.NewReplyFromRequest(request, append(o.options(request.MessageType() == dhcpv4.MessageTypeInform), dhcpv4.WithMessageType(kind))...))
}

// wrapped says what was done when making a reply failed.
func wrapped(reply *dhcpv4.DHCPv4, err error) (*dhcpv4.DHCPv4, error) {
	if err != nil {
		return nil, fmt.Errorf("making a DHCP reply: %w", err)
	}
	return reply, nil
}

// wanted is the address that a request asks for.
func (o offer) wanted(request *dhcpv4.DHCPv4) net.IP {
	if ip := request.RequestedIPAddress(); ip != nil && !ip.IsUnspecified() {
		return ip
	}
	if ip := request.ClientIPAddr; ip != nil && !ip.IsUnspecified() {
		return ip
	}
	return nil
}

func (o offer) ip() net.IP { return net.IP(o.address.Addr().AsSlice()) }

// options are those of an answer; inform asks for everything but an address.
func (o offer) options(inform bool) []dhcpv4.Modifier {
	mask := net.CIDRMask(o.address.Bits(), 32)
	out := []dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(o.server)),
		dhcpv4.WithOption(dhcpv4.OptSubnetMask(mask)),
	}
	if len(o.routes) > 0 { // before the router, which clients that know these ignore
		out = append(out, dhcpv4.WithOption(dhcpv4.OptClasslessStaticRoute(o.routes...)))
	}
	if o.gateway != nil {
		out = append(out, dhcpv4.WithOption(dhcpv4.OptRouter(o.gateway)))
	}
	if !inform {
		out = append(out, dhcpv4.WithYourIP(o.ip()), dhcpv4.WithOption(dhcpv4.OptIPAddressLeaseTime(leaseTime)))
	}
	if len(o.dns) > 0 {
		out = append(out, dhcpv4.WithOption(dhcpv4.OptDNS(o.dns...)))
	}
	if len(o.search) > 0 {
		out = append(out, dhcpv4.WithOption(dhcpv4.OptDomainSearch(&rfc1035label.Labels{Labels: o.search})))
		out = append(out, dhcpv4.WithOption(dhcpv4.OptDomainName(o.search[0])))
	}
	if o.host != "" {
		out = append(out, dhcpv4.WithOption(dhcpv4.OptHostName(o.host)))
	}
	if o.mtu > 0 {
		out = append(out, dhcpv4.WithOption(dhcpv4.Option{Code: dhcpv4.OptionInterfaceMTU, Value: dhcpv4.Uint16(uint16(o.mtu))}))
	}
	for _, option := range o.more {
		out = append(out, dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(option.Code), option.Value)))
	}
	return out
}

func parse(link protocol.Interface) (offer, error) {
	lease := link.DHCP
	mac, err := net.ParseMAC(link.MAC)
	if err != nil {
		return offer{}, fmt.Errorf("MAC address: %w", err)
	}
	address, err := netip.ParsePrefix(lease.Address)
	if err != nil || !address.Addr().Is4() {
		return offer{}, fmt.Errorf("address %q is not an IPv4 address with its prefix length", lease.Address)
	}
	out := offer{mac: mac, address: address, search: lease.Search, host: lease.Hostname, mtu: link.MTU, more: lease.Options}
	if out.gateway = net.ParseIP(lease.Gateway).To4(); out.gateway == nil && (lease.Gateway != "" || lease.Server == "") {
		return offer{}, fmt.Errorf("gateway %q is not an IPv4 address", lease.Gateway)
	}
	out.server, out.broadcast = out.gateway, lease.Server != ""
	if out.broadcast {
		if out.server = net.ParseIP(lease.Server).To4(); out.server == nil {
			return offer{}, fmt.Errorf("server %q is not an IPv4 address", lease.Server)
		}
	}
	if out.routes, err = routes(lease.Routes); err != nil {
		return offer{}, err
	}
	for _, server := range lease.DNS {
		if ip := net.ParseIP(server).To4(); ip != nil { // DHCPv4 carries no others
			out.dns = append(out.dns, ip)
		}
	}
	return out, nil
}

// routes are those of a lease as option 121 has them; a route on the link has the router 0.0.0.0.
func routes(told []protocol.Route) (dhcpv4.Routes, error) {
	var out dhcpv4.Routes
	for _, route := range told {
		to, err := netip.ParsePrefix(route.To)
		if err != nil || !to.Addr().Is4() {
			return nil, fmt.Errorf("route to %q is not to an IPv4 prefix", route.To)
		}
		router := net.IPv4zero.To4()
		if route.Via != "" {
			if router = net.ParseIP(route.Via).To4(); router == nil {
				return nil, fmt.Errorf("route to %s via %q, which is not an IPv4 address", route.To, route.Via)
			}
		}
		out = append(out, &dhcpv4.Route{Dest: &net.IPNet{IP: to.Masked().Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), 32)}, Router: router})
	}
	return out, nil
}
