package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/oci"
	"github.com/slipway-vm/slipway/hack/images/tree"
)

func TestCapabilitiesAreBakedAgainForAnotherBaseOrLauncher(t *testing.T) {
	launcher, other := filepath.Join(t.TempDir(), "launcher"), filepath.Join(t.TempDir(), "other")
	write := func(file, content string) {
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	key := func(base string) string {
		k, err := capabilitiesKey(oci.Layer{Digest: base}, []tree.Entry{binary(launcherProgram, launcher), binary("usr/bin/other", other)})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write(launcher, "1")
	write(other, "1")
	first := key("sha256:1")
	if key("sha256:2") == first {
		t.Error("another base layer has the same key")
	}
	write(other, "2")
	if key("sha256:1") != first {
		t.Error("another program changes the key")
	}
	write(launcher, "2")
	if key("sha256:1") == first {
		t.Error("another launcher has the same key")
	}
}

func TestCheckCapabilities(t *testing.T) {
	const good = "<qemuCaps>\n  <machine type='tcg' name='pc-q35-10.0' acpi='yes'/>\n</qemuCaps>\n"
	for name, c := range map[string]struct{ content, want string }{
		"of emulation":    {content: good},
		"empty":           {want: "knows no q35 machine"},
		"with KVM beside": {content: good + "<machine type='kvm' name='pc-q35-10.0'/>", want: "this machine's KVM"},
	} {
		err := checkCapabilities(c.content)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// A cached answer is used without root and without the base layer's file.
func TestCapabilitiesComeFromTheCache(t *testing.T) {
	launcher := filepath.Join(t.TempDir(), "launcher")
	if err := os.WriteFile(launcher, []byte("1"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := &builder{cache: cache.Dir(t.TempDir())}
	top, base := []tree.Entry{binary(launcherProgram, launcher)}, oci.Layer{Digest: "sha256:1"}
	key, err := capabilitiesKey(base, top)
	if err != nil {
		t.Fatal(err)
	}
	if err := keepCapabilities(b.cache, b.cache.Path("capabilities", key[:16]+".xml"), []byte("answer")); err != nil {
		t.Fatal(err)
	}
	got, err := addCapabilities(t.Context(), b, base, top)
	if err != nil || len(got) != 2 || got[1].Path != capabilitiesFile || got[1].Data != "answer" {
		t.Errorf("got %+v (%v)", got, err)
	}
}
