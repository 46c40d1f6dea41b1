//go:build integration

package launcher_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLibvirtAsksQEMUOnlyWithKVM shows that libvirt takes what the image says of QEMU
// under emulation, and finds out by itself where there is KVM.
func TestLibvirtAsksQEMUOnlyWithKVM(t *testing.T) {
	cases := map[string]string{"emulation": ""}
	if _, err := os.Stat("/dev/kvm"); err == nil {
		cases["KVM"] = "1"
	} else {
		t.Log("This machine has no /dev/kvm: only emulation is looked at")
	}
	for name, kvm := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_KVM", kvm)
			p := start(t)
			p.connected()
			p.logged("libvirt's readiness", "Libvirt is ready")
			files, err := filepath.Glob(filepath.Join(p.dir, "libvirt/cache/libvirt/qemu/cache/capabilities/*.xml"))
			if err != nil || len(files) != 1 {
				t.Fatalf("libvirt's cache has %v (%v), want one file", files, err)
			}
			known, err := os.Stat(files[0])
			if err != nil {
				t.Fatal(err)
			}
			socket, err := os.Stat(filepath.Join(p.dir, "libvirt/libvirt-sock"))
			if err != nil {
				t.Fatal(err)
			}
			// What libvirtd finds out it writes after it began to listen.
			asked := known.ModTime().After(socket.ModTime())
			if wantAsked := kvm != ""; asked != wantAsked {
				t.Errorf("libvirt asked QEMU: %t, want %t", asked, wantAsked)
			}
			content, err := os.ReadFile(files[0])
			if err != nil || strings.Contains(string(content), "<machine type='kvm'") != (kvm != "") {
				t.Errorf("the description of QEMU is of another accelerator (%v)", err)
			}
			for line := range strings.Lines(p.log.String()) {
				if strings.Contains(line, "Libvirt is ready") {
					t.Log(line)
				}
			}
		})
	}
}
