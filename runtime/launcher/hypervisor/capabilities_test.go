package hypervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReplaceTimeChangesOneElement(t *testing.T) {
	document := []byte("<qemuCaps>\n  <qemuctime>0</qemuctime>\n  <selfctime>17</selfctime>\n  <selfvers>1</selfvers>\n</qemuCaps>")
	got := string(replaceTime(document, "qemuctime", 1795199397))
	want := "<qemuCaps>\n  <qemuctime>1795199397</qemuctime>\n  <selfctime>17</selfctime>\n  <selfvers>1</selfvers>\n</qemuCaps>"
	if got != want {
		t.Errorf("got %s", got)
	}
}

func TestWithoutABakedDescriptionNothingIsInstalled(t *testing.T) {
	if err := installCapabilities(t.TempDir()+"/none.xml", t.TempDir()+"/kvm", "/usr/sbin/libvirtd", t.TempDir()); err != nil {
		t.Error(err)
	}
}

// The description was made without KVM: where KVM is, libvirt must find none and ask.
func TestWithKVMNothingIsInstalled(t *testing.T) {
	folder := t.TempDir()
	baked, kvm := filepath.Join(folder, "baked.xml"), filepath.Join(folder, "kvm")
	for _, file := range []string{baked, kvm} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(folder, "libvirt")
	if err := installCapabilities(baked, kvm, "/usr/sbin/libvirtd", dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("something was installed")
	}
	if err := os.Remove(kvm); err != nil {
		t.Fatal(err)
	}
	// Without KVM it is used: a program that is not there to take the time of is an error.
	if err := installCapabilities(baked, kvm, filepath.Join(folder, "none"), dir); err == nil || !strings.Contains(err.Error(), "looking at") {
		t.Errorf("error %v, want one about a file whose time is needed", err)
	}
}
