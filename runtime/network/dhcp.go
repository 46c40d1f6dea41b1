package network

import (
	"net/netip"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Codes of DHCP options (RFC 2132).
const (
	optionNTPServers = 42
	optionTFTPServer = 66
	optionBootFile   = 67
)

// dhcpOptions are what an interface asks to be told to its guest beside the address. Of
// time servers that are no IPv4 addresses, DHCP for IPv4 carries nothing; admission
// refuses them.
func dhcpOptions(wanted *v1.DHCPOptions) []protocol.DHCPOption {
	if wanted == nil {
		return nil
	}
	var options []protocol.DHCPOption
	add := func(code int, value []byte) {
		if len(value) > 0 {
			options = append(options, protocol.DHCPOption{Code: uint8(code), Value: value})
		}
	}
	var servers []byte
	for _, server := range wanted.NTPServers {
		if ip, err := netip.ParseAddr(server); err == nil && ip.Is4() {
			servers = append(servers, ip.AsSlice()...)
		}
	}
	add(optionNTPServers, servers)
	add(optionTFTPServer, []byte(wanted.TFTPServerName))
	add(optionBootFile, []byte(wanted.BootFileName))
	for _, private := range wanted.PrivateOptions {
		add(private.Option, []byte(private.Value))
	}
	return options
}
