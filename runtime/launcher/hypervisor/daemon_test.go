package hypervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyEmulationTakesTheShortWayToFeatures(t *testing.T) {
	kvm := filepath.Join(t.TempDir(), "kvm")
	short := func() bool {
		dir := t.TempDir()
		if err := writeConfiguration(dir, kvm); err != nil {
			t.Fatal(err)
		}
		conf, err := os.ReadFile(filepath.Join(dir, "config", "libvirt", "qemu.conf"))
		if err != nil || !strings.HasPrefix(string(conf), qemuConf) {
			t.Fatalf("qemu.conf is %q (%v)", conf, err)
		}
		return strings.Contains(string(conf), "capability_filters")
	}
	if !short() {
		t.Error("emulation takes the long way")
	}
	if err := os.WriteFile(kvm, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if short() {
		t.Error("KVM takes the short way")
	}
}
