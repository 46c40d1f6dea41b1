package machine

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A filter that keeps back what it does not know lets the bridge's packets through while the
// cluster is up, and is as it was after.
func TestTheMachinesFilterLetsTheBridgeThrough(t *testing.T) {
	needsProgram(t, "iptables", "iptables")
	for name, c := range map[string]struct {
		filter  [][]string
		forward bool
		input   bool
	}{
		"no rules":                     {nil, false, false},
		"docker's policy":              {[][]string{{"-P", "FORWARD", "DROP"}}, true, false},
		"ufw's policies":               {[][]string{{"-P", "FORWARD", "DROP"}, {"-P", "INPUT", "DROP"}}, true, true},
		"a last rule that refuses all": {[][]string{{"-A", "INPUT", "-i", "lo", "-j", "ACCEPT"}, {"-A", "INPUT", "-j", "REJECT"}}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			newNamespace(t)
			for _, args := range c.filter {
				iptables(t, args...)
			}
			before := iptables(t, "-S")
			for range 2 { // again by the next up
				if err := open(t.Context(), closedChains(t.Context()), "bridge0"); err != nil {
					t.Fatal(err)
				}
			}
			rules := iptables(t, "-S")
			for rule, want := range map[string]bool{"-A FORWARD -i bridge0": c.forward, "-A FORWARD -o bridge0": c.forward, "-A INPUT -i bridge0": c.input} {
				if got := strings.Count(rules, rule); got != map[bool]int{true: 1}[want] {
					t.Errorf("%d rules %s among\n%s", got, rule, rules)
				}
			}
			shut(t.Context(), "bridge0")
			if after := iptables(t, "-S"); after != before {
				t.Errorf("the filter is\n%s\nand was\n%s", after, before)
			}
		})
	}
}

// Only a network within the cluster's addresses is in the way: a wider one keeps the rest.
func TestNetworksInTheWayAreNamed(t *testing.T) {
	needsProgram(t, "ip", "iproute2")
	for name, c := range map[string]struct{ route, device, want string }{
		"none":                       {"", "", ""},
		"a way out":                  {"default", "other0", ""},
		"another network":            {"192.0.2.0/24", "other0", ""},
		"a wider network":            {"10.0.0.0/8", "other0", ""},
		"another cluster's pods":     {"10.244.0.0/16", "other0", "10.244.0.0/16 on other0"},
		"one node of it":             {"10.244.7.0/24", "other0", "10.244.7.0/24 on other0"},
		"an address of our services": {"10.96.0.10", "other0", "10.96.0.10 on other0, within the cluster's 10.96.0.0/16"},
		"our own bridge":             {"10.244.0.0/24", "slipway0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			newNamespace(t)
			var commands [][]string
			if c.route != "" {
				commands = [][]string{
					{"link", "add", c.device, "type", "bridge"}, {"link", "set", c.device, "up"}, {"route", "add", c.route, "dev", c.device},
				}
			}
			for _, args := range commands {
				if _, err := run(t.Context(), "ip", args...); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := Collision(t.Context()); err != nil || c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// newNamespace runs the rest of the test, and the programs that it starts, in a new network namespace.
func newNamespace(t *testing.T) {
	t.Helper()
	needsRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

func iptables(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t.Context(), "iptables", append([]string{"-w"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
