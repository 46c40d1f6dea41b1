package podnet

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/network"
)

// replaceTables puts tables in the place of those of the same name, in one transaction:
// no packet sees a namespace without them.
func replaceTables(tables []network.Table) error {
	if len(tables) == 0 {
		return nil
	}
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	for _, table := range tables {
		own := &nftables.Table{Name: network.TableName, Family: families[table.Family]}
		conn.AddTable(own) // so that the deletion finds one
		conn.DelTable(own)
		conn.AddTable(own)
		for _, chain := range table.Chains {
			placed := conn.AddChain(baseChain(own, chain.Hook))
			for _, rule := range chain.Rules {
				conn.AddRule(&nftables.Rule{Table: own, Chain: placed, Exprs: compile(rule, table.Family)})
			}
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("committing the rules: %w", err)
	}
	return nil
}

var families = map[network.Family]nftables.TableFamily{
	network.IPv4: nftables.TableFamilyIPv4,
	network.IPv6: nftables.TableFamilyIPv6,
}

// place is where a chain hooks in.
type place struct {
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority *nftables.ChainPriority
}

var places = map[network.Hook]place{
	network.HookRaw:         {nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw},
	network.HookPrerouting:  {nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest},
	network.HookForward:     {nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter},
	network.HookOutput:      {nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest},
	network.HookPostrouting: {nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource},
}

func baseChain(table *nftables.Table, hook network.Hook) *nftables.Chain {
	at := places[hook]
	return &nftables.Chain{Name: string(hook), Table: table, Type: at.kind, Hooknum: at.hook, Priority: at.priority}
}

// compile translates a rule to the kernel's expressions.
func compile(rule network.Rule, family network.Family) []expr.Any {
	var out []expr.Any
	if rule.In != "" {
		out = append(out, meta(expr.MetaKeyIIFNAME), equal(interfaceName(rule.In)))
	}
	if rule.Out != "" {
		out = append(out, meta(expr.MetaKeyOIFNAME), equal(interfaceName(rule.Out)))
	}
	layout := layouts[family]
	out = append(out, matchPrefix(rule.From, layout.source, expr.CmpOpEq)...)
	out = append(out, matchPrefix(rule.NotFrom, layout.source, expr.CmpOpNeq)...)
	out = append(out, matchPrefix(rule.To, layout.destination, expr.CmpOpEq)...)
	if rule.Protocol != "" {
		out = append(out, meta(expr.MetaKeyL4PROTO), equal([]byte{protocols[rule.Protocol]}),
			&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: portLength},
			equal(binaryutil.BigEndian.PutUint16(rule.Port)))
	}
	return append(out, verdict(rule, layout)...)
}

func verdict(rule network.Rule, layout layout) []expr.Any {
	nat := &expr.NAT{Family: layout.family, RegAddrMin: register}
	switch rule.Verdict {
	case network.Drop:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	case network.Masquerade:
		return []expr.Any{&expr.Masq{}}
	case network.DNAT:
		nat.Type = expr.NATTypeDestNAT
	case network.SNAT:
		nat.Type = expr.NATTypeSourceNAT
	}
	return []expr.Any{&expr.Immediate{Register: register, Data: rule.Address.AsSlice()}, nat}
}

// register is the one that every match loads into.
const register = 1

// Where a transport header of TCP or UDP has its destination port, in bytes.
const (
	destinationPort = 2
	portLength      = 2
)

var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}

// layout says where a network header has its addresses, in bytes.
type layout struct {
	source, destination uint32
	family              uint32
}

var layouts = map[network.Family]layout{
	network.IPv4: {source: 12, destination: 16, family: unix.NFPROTO_IPV4},
	network.IPv6: {source: 8, destination: 24, family: unix.NFPROTO_IPV6},
}

func meta(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: register} }

func equal(data []byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: data}
}

// interfaceName is the name as the kernel compares it: padded with zeros.
func interfaceName(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

// matchPrefix compares the address at offset with prefix; an unset prefix matches all.
func matchPrefix(prefix netip.Prefix, offset uint32, op expr.CmpOp) []expr.Any {
	if !prefix.IsValid() {
		return nil
	}
	length := uint32(prefix.Addr().BitLen() / 8)
	out := []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}}
	if prefix.Bits() < prefix.Addr().BitLen() {
		out = append(out, &expr.Bitwise{
			SourceRegister: register, DestRegister: register, Len: length,
			Mask: mask(prefix), Xor: make([]byte, length),
		})
	}
	return append(out, &expr.Cmp{Op: op, Register: register, Data: prefix.Masked().Addr().AsSlice()})
}

// mask is prefix's netmask as bytes.
func mask(prefix netip.Prefix) []byte {
	out := make([]byte, prefix.Addr().BitLen()/8)
	for bit := range prefix.Bits() {
		out[bit/8] |= 0x80 >> (bit % 8)
	}
	return out
}
