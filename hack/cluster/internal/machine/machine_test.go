package machine

import (
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
)

func TestMountsAreReadAndOrdered(t *testing.T) {
	text := `21 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 21 0:40 / /s/x\040y rw - tmpfs tmpfs rw
31 21 254:0 /s /s rw shared:2 master:1 - ext4 /dev/vda rw
32 31 7:0 / /s/pool rw shared:3 - xfs /dev/loop0 rw
33 31 0:50 / /s/kubelet/pods/a/v rw shared:4 - tmpfs tmpfs rw
34 21 0:51 / /second rw - tmpfs tmpfs rw
`
	all := parseMounts(text)
	if len(all) != 6 || all[1].path != "/s/x y" || all[1].shared || !all[2].shared || all[3].fstype != "xfs" {
		t.Fatalf("mounts %+v", all)
	}
	want := []string{"/s/kubelet/pods/a/v", "/s/pool", "/s/x y", "/s"}
	if got := pathsBelow(all, "/s"); !slices.Equal(got, want) {
		t.Errorf("below /s: %v, want %v", got, want)
	}
}

func TestNameServersThatPodsCanReach(t *testing.T) {
	text := "# comment\nnameserver 127.0.0.53\nnameserver ::1\nsearch x\nnameserver 192.0.2.53\nnameserver\n"
	if got := nameservers(text); !slices.Equal(got, []string{"192.0.2.53"}) {
		t.Errorf("name servers %v, want 192.0.2.53", got)
	}
}

func TestNamespaceIsKnownByItsAddress(t *testing.T) {
	pods := netip.MustParsePrefix("10.244.0.0/24")
	for list, want := range map[string]bool{
		`[{"ifname":"lo","addr_info":[{"local":"127.0.0.1"}]},{"ifname":"eth0","addr_info":[{"local":"10.244.0.9"}]}]`: true,
		`[{"ifname":"eth0","addr_info":[{"local":"10.244.1.9"}]}]`:                                                     false,
		`[]`:      false,
		`no JSON`: false,
	} {
		if got := holdsAddress(list, pods); got != want {
			t.Errorf("%s: %t, want %t", list, got, want)
		}
	}
}

func TestPresence(t *testing.T) {
	dir := t.TempDir()
	if !present(filepath.Join(dir, "none") + "," + dir) {
		t.Error("the second of two places was not looked at")
	}
	if present("no-such-program-anywhere") {
		t.Error("a program that does not exist is present")
	}
}

func TestSysctlsAreOnlyRaised(t *testing.T) {
	for _, c := range []struct {
		have, want string
		enough     bool
	}{{"128", "1024", false}, {"1024", "1024", true}, {"8192", "1024", true}, {"x", "1", false}} {
		if got := atLeast(c.have, c.want); got != c.enough {
			t.Errorf("%s for %s: %t", c.have, c.want, got)
		}
	}
}
