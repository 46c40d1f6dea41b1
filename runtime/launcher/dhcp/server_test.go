package dhcp

import (
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

func TestParseNamesWhatIsWrong(t *testing.T) {
	bad := link()
	bad.DHCP.Address = "10.0.2.2"
	if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), "prefix length") {
		t.Errorf("error %v", err)
	}
}
