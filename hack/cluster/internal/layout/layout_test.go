package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocketsFitWhereverTheCheckoutIs(t *testing.T) {
	for name, checkout := range map[string]string{
		"a short path": "/src/slipway",
		"a long path":  "/home/someone/with/a/rather/long/path/to/all/their/checkouts/slipway",
	} {
		n := New(checkout).First()
		longest := filepath.Join(n.KubeletRoot(), "plugins_registry", "kubevirt.io.hostpath-provisioner-reg.sock")
		if len(longest) > 107 {
			t.Errorf("%s: %s has %d bytes, more than a socket's path may have", name, longest, len(longest))
		}
	}
	if a, b := New("/one/"+strings.Repeat("x", 50)), New("/two/"+strings.Repeat("x", 50)); a.State == b.State {
		t.Error("two checkouts share a state folder")
	}
}

func TestPrepareLinksALongPath(t *testing.T) {
	c := New(t.TempDir())
	c.State = filepath.Join(t.TempDir(), "state")
	for range 2 {
		if err := c.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.Readlink(filepath.Join(c.Checkout, ".cluster")); err != nil || got != c.State {
		t.Errorf(".cluster links to %q (%v), want %s", got, err, c.State)
	}
}
