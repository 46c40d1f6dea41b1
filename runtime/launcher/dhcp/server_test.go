package dhcp

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

func link() protocol.Interface {
	return protocol.Interface{
		Name: "default", Tap: "tap0", MAC: "02:00:00:00:00:01", MTU: 1450,
		DHCP: &protocol.Lease{
			Address: "10.0.2.2/24", Gateway: "10.0.2.1", DNS: []string{"10.96.0.10", "fd00::10"},
			Search: []string{"default.svc.cluster.local", "cluster.local"}, Hostname: "web",
			Options: []protocol.DHCPOption{{Code: 42, Value: []byte{10, 0, 0, 7}}, {Code: 67, Value: []byte("boot/loader.efi")}, {Code: 224, Value: []byte("ours")}},
		},
	}
}

func TestReply(t *testing.T) {
	guest, stranger := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 9}
	request := func(mac net.HardwareAddr, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
		out, err := dhcpv4.New(append(more, dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(kind))...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	asking := func(ip string) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(ip)))
	}
	other := dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP("10.0.2.77")))
	cases := map[string]struct {
		request *dhcpv4.DHCPv4
		want    dhcpv4.MessageType // none for silence
	}{
		"a discover is offered the lease":               {request(guest, dhcpv4.MessageTypeDiscover), dhcpv4.MessageTypeOffer},
		"a request for the lease is granted":            {request(guest, dhcpv4.MessageTypeRequest, asking("10.0.2.2")), dhcpv4.MessageTypeAck},
		"a renewal is granted":                          {request(guest, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(net.ParseIP("10.0.2.2"))), dhcpv4.MessageTypeAck},
		"a request for an earlier address is denied":    {request(guest, dhcpv4.MessageTypeRequest, asking("192.168.1.5")), dhcpv4.MessageTypeNak},
		"a request to another server is not answered":   {request(guest, dhcpv4.MessageTypeRequest, asking("10.0.2.2"), other), dhcpv4.MessageTypeNone},
		"a stranger's hardware address is not answered": {request(stranger, dhcpv4.MessageTypeDiscover), dhcpv4.MessageTypeNone},
		"an inform gets the options":                    {request(guest, dhcpv4.MessageTypeInform), dhcpv4.MessageTypeAck},
		"a release needs no answer":                     {request(guest, dhcpv4.MessageTypeRelease), dhcpv4.MessageTypeNone},
	}
	offer, err := parse(link())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			reply, err := offer.reply(c.request)
			if err != nil {
				t.Fatal(err)
			}
			if reply == nil {
				if c.want != dhcpv4.MessageTypeNone {
					t.Fatal("no answer")
				}
				return
			}
			if reply.MessageType() != c.want {
				t.Fatalf("answer %s, want %s", reply.MessageType(), c.want)
			}
		})
	}
}

func TestTheLeaseIsWhole(t *testing.T) {
	offer, err := parse(link())
	if err != nil {
		t.Fatal(err)
	}
	discover, err := dhcpv4.NewDiscovery(offer.mac)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := offer.reply(discover)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := dhcpv4.FromBytes(sent.ToBytes())
	if err != nil {
		t.Fatal(err)
	}
	summary := reply.Summary()
	for _, want := range []string{"10.0.2.2", "ffffff00", "Router: 10.0.2.1", "Domain Name Server: 10.96.0.10", "default.svc.cluster.local", "Host Name: web", "NTP Servers: 10.0.0.7", "Bootfile Name: boot/loader.efi"} {
		if !strings.Contains(summary, want) {
			t.Errorf("the offer lacks %q:\n%s", want, summary)
		}
	}
	if private := reply.Options.Get(dhcpv4.GenericOptionCode(224)); string(private) != "ours" {
		t.Errorf("option 224 is %q, want ours", private)
	}
	if mtu := reply.Options.Get(dhcpv4.OptionInterfaceMTU); len(mtu) != 2 || int(mtu[0])<<8|int(mtu[1]) != 1450 {
		t.Errorf("MTU option is %v, want 1450", mtu)
	}
}

// bridged is the lease of a guest that has the pod's own address, without a subnet.
func bridged() protocol.Interface {
	out := link()
	out.DHCP = &protocol.Lease{
		Address: "10.244.0.7/32", Gateway: "169.254.1.1", Server: "169.254.75.10",
		Routes: []protocol.Route{{To: "169.254.1.1/32"}, {To: "10.96.0.0/12", Via: "169.254.1.1"}, {To: "0.0.0.0/0", Via: "169.254.1.1"}},
	}
	return out
}

func TestAGuestOnABridgeIsToldItsRoutesAndAnsweredByBroadcast(t *testing.T) {
	offer, err := parse(bridged())
	if err != nil {
		t.Fatal(err)
	}
	renewal, err := dhcpv4.New(dhcpv4.WithHwAddr(offer.mac), dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithClientIP(net.ParseIP("10.244.0.7")))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := offer.reply(renewal)
	if err != nil || reply.MessageType() != dhcpv4.MessageTypeAck {
		t.Fatalf("answer %v, %v", reply, err)
	}
	// RFC 3442: the prefix's length, as many bytes of it as that fills, and the router.
	want := []byte{32, 169, 254, 1, 1, 0, 0, 0, 0, 12, 10, 96, 169, 254, 1, 1, 0, 169, 254, 1, 1}
	if got := reply.Options.Get(dhcpv4.OptionClasslessStaticRoute); !bytes.Equal(got, want) {
		t.Errorf("option 121 is %v, want %v", got, want)
	}
	if !reply.ServerIdentifier().Equal(net.ParseIP("169.254.75.10")) || net.IP(reply.SubnetMask()).String() != "255.255.255.255" {
		t.Errorf("server %s, mask %s", reply.ServerIdentifier(), reply.SubnetMask())
	}
	if router := reply.Router(); len(router) != 1 || router[0].String() != "169.254.1.1" {
		t.Errorf("routers %v", router)
	}
	if target := offer.target(renewal, reply); !target.IP.Equal(net.IPv4bcast) {
		t.Errorf("the renewal is answered to %s, which is the pod's own", target)
	}
}

func TestARenewalBehindMasqueradeIsAnsweredToItsSender(t *testing.T) {
	offer, err := parse(link())
	if err != nil {
		t.Fatal(err)
	}
	renewal, err := dhcpv4.New(dhcpv4.WithHwAddr(offer.mac), dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithClientIP(net.ParseIP("10.0.2.2")))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := offer.reply(renewal)
	if err != nil {
		t.Fatal(err)
	}
	if target := offer.target(renewal, reply); target.IP.String() != "10.0.2.2" {
		t.Errorf("the renewal is answered to %s", target)
	}
	if reply.Options.Has(dhcpv4.OptionClasslessStaticRoute) {
		t.Error("routes are told where the gateway is all")
	}
}

func TestAGuestWithoutAWayOutIsToldNone(t *testing.T) {
	lonely := bridged()
	lonely.DHCP.Gateway, lonely.DHCP.Routes = "", nil
	offer, err := parse(lonely)
	if err != nil {
		t.Fatal(err)
	}
	discover, err := dhcpv4.NewDiscovery(offer.mac)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := offer.reply(discover)
	if err != nil {
		t.Fatal(err)
	}
	if reply.Options.Has(dhcpv4.OptionRouter) || reply.Options.Has(dhcpv4.OptionClasslessStaticRoute) {
		t.Errorf("it is told of ways out:\n%s", reply.Summary())
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*protocol.Lease){
		"prefix length":             func(l *protocol.Lease) { l.Address = "10.0.2.2" },
		`gateway "fd00::1"`:         func(l *protocol.Lease) { l.Gateway = "fd00::1" },
		`gateway ""`:                func(l *protocol.Lease) { l.Gateway, l.Server = "", "" },
		`server "here"`:             func(l *protocol.Lease) { l.Server = "here" },
		`route to "10.0.0.0"`:       func(l *protocol.Lease) { l.Routes[0].To = "10.0.0.0" },
		`169.254.1.1/32 via "fe80"`: func(l *protocol.Lease) { l.Routes[0].Via = "fe80" },
	} {
		bad := bridged()
		change(bad.DHCP)
		if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
}
