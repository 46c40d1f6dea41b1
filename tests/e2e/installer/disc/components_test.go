package disc

import (
	"slices"
	"strings"
	"testing"
)

// Modules come with all that they need, each once; a module that the kernel does not have is an error that names it.
func TestNeeded(t *testing.T) {
	files := map[string]string{"ext4": "fs/ext4.ko", "jbd2": "fs/jbd2.ko", "crc16": "lib/crc16.ko", "pvpanic_mmio": "misc/pvpanic-mmio.ko", "pvpanic": "misc/pvpanic.ko"}
	depends := func(file string) ([]string, error) {
		return map[string][]string{"fs/ext4.ko": {"jbd2", "crc16"}, "fs/jbd2.ko": {"crc16"}, "misc/pvpanic-mmio.ko": {"pvpanic"}}[file], nil
	}
	got, err := needed(files, []string{"ext4", "pvpanic-mmio"}, depends)
	want := []string{"fs/ext4.ko", "misc/pvpanic-mmio.ko", "fs/jbd2.ko", "lib/crc16.ko", "misc/pvpanic.ko"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if _, err := needed(files, []string{"xfs"}, depends); err == nil || !strings.Contains(err.Error(), "no module xfs") {
		t.Errorf("xfs is not there, and the error is %v", err)
	}
}

// What the disc brings along is listed after what the initrd has, as stanzas of their own.
func TestInstalled(t *testing.T) {
	status := string(installed([]byte("Package: anna\nStatus: install ok unpacked\nVersion: 1\n\n"), "6.1.0-1-amd64"))
	stanzas := strings.Split(strings.TrimSpace(status), "\n\n")
	if len(stanzas) != 6 || !strings.HasPrefix(stanzas[0], "Package: anna\n") {
		t.Fatalf("got %d stanzas:\n%s", len(stanzas), status)
	}
	for i, name := range []string{"e2fsprogs-udeb", "ntfs-3g-udeb", "partman-auto-lvm", "partman-auto-crypto", "ext4-modules-6.1.0-1-amd64-di"} {
		if !strings.HasPrefix(stanzas[i+1], "Package: "+name+"\nStatus: install ok installed\nVersion: ") {
			t.Errorf("stanza %d is not of %s:\n%s", i+1, name, stanzas[i+1])
		}
	}
}
