package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

// netnsDir is where named network namespaces are.
const netnsDir = "/run/netns"

// Network makes the node's bridge, the route to services and the masquerading of pods.
func (r *Record) Network(ctx context.Context, n layout.Node, mtu int) error {
	if _, err := net.InterfaceByName(n.Bridge); err != nil {
		if _, err := run(ctx, "ip", "link", "add", n.Bridge, "type", "bridge"); err != nil {
			return err
		}
	}
	_, bits, _ := strings.Cut(n.PodCIDR, "/")
	for _, args := range [][]string{
		{"addr", "replace", n.IP + "/" + bits, "dev", n.Bridge},
		{"link", "set", n.Bridge, "mtu", strconv.Itoa(mtu), "up"},
		{"route", "replace", layout.ServiceCIDR, "dev", n.Bridge, "src", n.IP},
	} {
		if _, err := run(ctx, "ip", args...); err != nil {
			return err
		}
	}
	table := fmt.Sprintf(`add table ip %[1]s
delete table ip %[1]s
table ip %[1]s {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %[2]s ip daddr != { %[2]s, 224.0.0.0/4 } masquerade
	}
}
`, layout.Table, layout.ClusterCIDR)
	if err := runInput(ctx, table, "nft", "-f", "-"); err != nil {
		return fmt.Errorf("making pods reach beyond the machine: %w", err)
	}
	return r.letThrough(ctx, n.Bridge)
}

// Collision names a network of the machine's that lies within the cluster's addresses, and so would
// keep its packets; "" when there is none.
func Collision(ctx context.Context) (string, error) {
	out, err := run(ctx, "ip", "-j", "-4", "route", "show")
	if err != nil {
		return "", err
	}
	var routes []struct {
		To  string `json:"dst"`
		Dev string `json:"dev"`
	}
	if err := json.Unmarshal([]byte(out), &routes); err != nil {
		return "", fmt.Errorf("reading the machine's routes: %w", err)
	}
	for _, r := range routes {
		if r.Dev == layout.Bridge {
			continue // left by a cluster whose record is lost; it is used again
		}
		to, err := netip.ParsePrefix(r.To)
		if err != nil {
			address, err := netip.ParseAddr(r.To)
			if err != nil {
				continue // the default route
			}
			to = netip.PrefixFrom(address, address.BitLen())
		}
		for _, ours := range []string{layout.ClusterCIDR, layout.ServiceCIDR} {
			if p, err := netip.ParsePrefix(ours); err == nil && p.Bits() <= to.Bits() && p.Contains(to.Addr()) {
				return fmt.Sprintf("%s on %s, within the cluster's %s", r.To, r.Dev, ours), nil
			}
		}
	}
	return "", nil
}

// letThrough adds rules for the bridge where the machine's filter keeps back what it does not
// know: forwarded packets, as docker's does, or what pods send to the node, as ufw's does.
func (r *Record) letThrough(ctx context.Context, bridge string) error {
	chains := closedChains(ctx)
	if len(chains) == 0 {
		return nil
	}
	r.Forward = true
	if err := r.Save(); err != nil {
		return err
	}
	return open(ctx, chains, bridge)
}

// filterChains are those that a pod's packets pass on their way.
var filterChains = []string{"FORWARD", "INPUT"}

// closedChains returns the chains of the machine's filter that keep packets back.
func closedChains(ctx context.Context) []string {
	var closed []string
	for _, chain := range filterChains {
		rules, err := run(ctx, "iptables", "-w", "-S", chain)
		if err == nil && keepsBack(rules, chain) { // an error: there is no filter
			closed = append(closed, chain)
		}
	}
	return closed
}

// open lets the bridge's packets through the chains.
func open(ctx context.Context, chains []string, bridge string) error {
	for _, chain := range chains {
		for _, rule := range through(chain, bridge) {
			if _, err := run(ctx, "iptables", append([]string{"-w", "-C"}, rule...)...); err == nil {
				continue
			}
			if _, err := run(ctx, "iptables", append([]string{"-w", "-I"}, rule...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepsBack tells whether a chain's rules keep packets back, by its policy or by a rule.
func keepsBack(rules, chain string) bool {
	for _, sign := range []string{"-P " + chain + " DROP", "-j DROP", "-j REJECT"} {
		if strings.Contains(rules, sign) {
			return true
		}
	}
	return false
}

// through are the rules of a chain that let the bridge's packets through.
func through(chain, bridge string) [][]string {
	ways := []string{"-i"}
	if chain == "FORWARD" {
		ways = append(ways, "-o")
	}
	var rules [][]string
	for _, way := range ways {
		rules = append(rules, []string{chain, way, bridge, "-m", "comment", "--comment", layout.Table, "-j", "ACCEPT"})
	}
	return rules
}

// shut removes the rules that open added.
func shut(ctx context.Context, bridge string) {
	for _, chain := range filterChains {
		for _, rule := range through(chain, bridge) {
			_, _ = run(ctx, "iptables", append([]string{"-w", "-D"}, rule...)...) // not there: none was needed, or docker's restart took it
		}
	}
}

// portmapChains are those that the port mapping plugin makes in the nat table.
var portmapChains = []string{"CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK"}

// sharedTables are those that the port mapping plugin makes by way of iptables.
var sharedTables = []string{"ip nat", "ip filter", "ip mangle"}

// rememberFilter records which tables are there, and which chains of the port
// mapping plugin are another's.
func (r *Record) rememberFilter(ctx context.Context) {
	tables, err := run(ctx, "nft", "list", "tables")
	if err == nil {
		for line := range strings.Lines(tables) {
			r.Tables = append(r.Tables, strings.TrimPrefix(strings.TrimSpace(line), "table "))
		}
	}
	rules, err := run(ctx, "iptables-save", "-t", "nat")
	if err != nil {
		return
	}
	for _, chain := range portmapChains {
		if strings.Contains(rules, ":"+chain+" ") {
			r.Chains = appendNew(r.Chains, chain)
		}
	}
}

// removeNetwork takes down what the node had of links and tables.
func (r *Record) removeNetwork(ctx context.Context, n layout.Node) error {
	var all *multierror.Error
	for _, link := range members(ctx, n.Bridge) {
		_, _ = run(ctx, "ip", "link", "delete", link) // ends with its namespace anyway
	}
	if _, err := net.InterfaceByName(n.Bridge); err == nil {
		if _, err := run(ctx, "ip", "link", "delete", n.Bridge); err != nil {
			all = multierror.Append(all, err)
		}
	}
	if r.Forward {
		shut(ctx, n.Bridge)
	}
	r.removeChains(ctx)
	r.removeEmptyTables(ctx)
	for _, table := range [][]string{{"ip", layout.Table}, {"ip", "kube-proxy"}, {"ip6", "kube-proxy"}} {
		if _, err := run(ctx, "nft", "list", "table", table[0], table[1]); err != nil {
			continue
		}
		if _, err := run(ctx, "nft", "delete", "table", table[0], table[1]); err != nil {
			all = multierror.Append(all, err)
		}
	}
	return all.ErrorOrNil()
}

// removeChains removes the port mapping plugin's chains unless they are another's.
func (r *Record) removeChains(ctx context.Context) {
	rules, err := run(ctx, "iptables-save", "-t", "nat")
	if err != nil || len(r.Chains) > 0 {
		return
	}
	for line := range strings.Lines(rules) {
		if spec, ok := strings.CutPrefix(strings.TrimSpace(line), "-A "); ok && strings.Contains(spec, "CNI-HOSTPORT-") && !strings.HasPrefix(spec, "CNI-") {
			_ = runInput(ctx, "*nat\n-D "+spec+"\nCOMMIT\n", "iptables-restore", "-w", "--noflush")
		}
	}
	for _, verb := range []string{"-F", "-X"} {
		for _, chain := range portmapChains {
			if strings.Contains(rules, ":"+chain+" ") {
				_, _ = run(ctx, "iptables", "-w", "-t", "nat", verb, chain)
			}
		}
	}
}

// removeEmptyTables removes the tables that the port mapping plugin left without a rule.
func (r *Record) removeEmptyTables(ctx context.Context) {
	for _, table := range sharedTables {
		if slices.Contains(r.Tables, table) {
			continue
		}
		family, name, _ := strings.Cut(table, " ")
		rules, err := run(ctx, "iptables-save", "-t", name)
		if err != nil || strings.Contains(rules, "\n-A ") {
			continue
		}
		_, _ = run(ctx, "nft", "delete", "table", family, name) // not there: nothing to do
	}
}

// members returns the names of the devices on a bridge.
func members(ctx context.Context, bridge string) []string {
	out, err := run(ctx, "ip", "-j", "link", "show", "master", bridge)
	if err != nil {
		return nil
	}
	var links []struct {
		Name string `json:"ifname"`
	}
	if json.Unmarshal([]byte(out), &links) != nil {
		return nil
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}

// podNamespaces returns the named network namespaces that hold an address of the
// node's pods. They outlive the pods' processes.
func podNamespaces(ctx context.Context, n layout.Node) []string {
	pods, err := netip.ParsePrefix(n.PodCIDR)
	if err != nil {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(netnsDir, "cni-*"))
	if err != nil {
		return nil
	}
	var found []string
	for _, file := range files {
		out, err := run(ctx, "ip", "-n", filepath.Base(file), "-j", "-4", "addr", "show")
		if err == nil && holdsAddress(out, pods) {
			found = append(found, filepath.Base(file))
		}
	}
	return found
}

// holdsAddress tells whether ip's list of devices has an address of a range.
func holdsAddress(list string, within netip.Prefix) bool {
	var devices []struct {
		Addresses []struct {
			Local string `json:"local"`
		} `json:"addr_info"`
	}
	if json.Unmarshal([]byte(list), &devices) != nil {
		return false
	}
	for _, d := range devices {
		for _, a := range d.Addresses {
			if ip, err := netip.ParseAddr(a.Local); err == nil && within.Contains(ip) {
				return true
			}
		}
	}
	return false
}
