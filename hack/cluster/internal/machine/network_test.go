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
