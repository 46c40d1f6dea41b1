package network

import (
	"fmt"
	"net/netip"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// TableName is the name of the nftables tables that are Slipway's; whatever a table of
// this name holds is replaced.
const TableName = "slipway"

// Family of an nftables table.
type Family string

// Families of addresses.
const (
	IPv4 Family = "ip"
	IPv6 Family = "ip6"
)

// Hook is where in a packet's way a chain sits, with the priority that belongs there.
type Hook string

// Hooks in the order in which a forwarded packet meets them.
const (
	HookRaw         Hook = "raw"         // filter at prerouting, before connection tracking
	HookPrerouting  Hook = "prerouting"  // nat
	HookForward     Hook = "forward"     // filter
	HookOutput      Hook = "output"      // nat, for what the pod's own processes send
	HookPostrouting Hook = "postrouting" // nat
)

// Table is an nftables table, replaced whole.
type Table struct {
	Family Family  `json:"family"`
	Chains []Chain `json:"chains"`
}

// Chain is a base chain; its policy is to accept.
type Chain struct {
	Hook  Hook   `json:"hook"`
	Rules []Rule `json:"rules"`
}

// Verdict is what becomes of a packet that a rule matches.
type Verdict string

// Verdicts.
const (
	Drop       Verdict = "drop"
	Masquerade Verdict = "masquerade"
	DNAT       Verdict = "dnat"
	SNAT       Verdict = "snat"
)

// Rule matches packets by the fields that are set, and gives its verdict.
type Rule struct {
	In      string
	Out     string
	From    netip.Prefix
	NotFrom netip.Prefix
	To      netip.Prefix
	// Protocol is tcp or udp, with Port; both or none.
	Protocol string
	Port     uint16
	Verdict  Verdict
	// Address is the new destination or source of DNAT and SNAT.
	Address netip.Addr
}

// MarshalText writes the rule as nft(8) would, without the family.
func (r Rule) MarshalText() ([]byte, error) {
	var words []string
	word := func(set bool, format string, args ...any) {
		if set {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	word(r.In != "", "iifname %s", r.In)
	word(r.Out != "", "oifname %s", r.Out)
	word(r.From.IsValid(), "saddr %s", r.From)
	word(r.NotFrom.IsValid(), "saddr != %s", r.NotFrom)
	word(r.To.IsValid(), "daddr %s", r.To)
	word(r.Protocol != "", "%s dport %d", r.Protocol, r.Port)
	word(true, "%s", r.Verdict)
	word(r.Address.IsValid(), "to %s", r.Address)
	return []byte(strings.Join(words, " ")), nil
}

// The addresses of the pod's own loopback, all and the one that programs listen on.
var (
	loopback  = netip.MustParsePrefix("127.0.0.0/8")
	localhost = netip.MustParsePrefix("127.0.0.1/32")
)

// link is the way between the pod's interface and one guest, for one address family.
type link struct {
	tap, pod string
	podIP    netip.Addr
	gateway  netip.Addr
	guest    netip.Addr
	bits     int
	ports    []v1.Port
}

func (l link) sysctls() []Sysctl {
	if l.podIP.Is6() {
		return []Sysctl{{Path: "net/ipv6/conf/all/forwarding", Value: "1"}}
	}
	return []Sysctl{
		{Path: "net/ipv4/ip_forward", Value: "1"},
		// What the pod's processes send to 127.0.0.1 (kubectl port-forward) reaches the guest.
		{Path: "net/ipv4/conf/" + l.tap + "/route_localnet", Value: "1"},
	}
}

func (l link) table() Table {
	guest := host(l.guest)
	toGuest := Rule{Verdict: DNAT, Address: l.guest}
	prerouting := append(
		l.perPort(with(toGuest, func(r *Rule) { r.In, r.To = l.pod, host(l.podIP) })),
		l.perPort(with(toGuest, func(r *Rule) { r.In, r.To = l.tap, host(l.podIP) }))..., // the guest calls itself
	)
	output := l.perPort(with(toGuest, func(r *Rule) { r.To = host(l.podIP) }))
	postrouting := []Rule{
		{Out: l.pod, From: guest, Verdict: Masquerade},
		{Out: l.tap, From: guest, Verdict: SNAT, Address: l.gateway},
	}
	table := Table{Family: IPv6}
	if l.podIP.Is4() {
		table.Family = IPv4
		// With route_localnet the guest could otherwise address the pod's loopback.
		table.Chains = append(table.Chains, Chain{Hook: HookRaw, Rules: []Rule{{In: l.tap, To: loopback, Verdict: Drop}}})
		output = append(output, l.perPort(with(toGuest, func(r *Rule) { r.To = localhost }))...)
		postrouting = append(postrouting, Rule{Out: l.tap, From: loopback, Verdict: SNAT, Address: l.gateway})
	}
	table.Chains = append(table.Chains,
		Chain{Hook: HookPrerouting, Rules: prerouting},
		// A guest that takes another source address would leave the pod with it.
		Chain{Hook: HookForward, Rules: []Rule{{In: l.tap, NotFrom: guest, Verdict: Drop}}},
		Chain{Hook: HookOutput, Rules: output},
		Chain{Hook: HookPostrouting, Rules: postrouting},
	)
	return table
}

// perPort repeats rule for each listed port; without a list it stands for every port
// and protocol.
func (l link) perPort(rule Rule) []Rule {
	if len(l.ports) == 0 {
		return []Rule{rule}
	}
	rules := make([]Rule, 0, len(l.ports))
	for _, port := range l.ports {
		rules = append(rules, with(rule, func(r *Rule) {
			r.Protocol, r.Port = protocolOf(port), uint16(port.Port)
		}))
	}
	return rules
}

func protocolOf(port v1.Port) string {
	if port.Protocol == "" {
		return "tcp"
	}
	return strings.ToLower(port.Protocol)
}

func with(rule Rule, change func(*Rule)) Rule {
	change(&rule)
	return rule
}

func host(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }
