package recipe

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/hack/images/debian"
)

func TestPartitionEntry(t *testing.T) {
	entry := make([]byte, 16)
	putPartition(entry, 0x80, 0x0e, 1<<20, 40<<20)
	if entry[0] != 0x80 || entry[4] != 0x0e {
		t.Errorf("entry is %x, want an active FAT16 partition", entry)
	}
	start, size := binary.LittleEndian.Uint32(entry[8:]), binary.LittleEndian.Uint32(entry[12:])
	if start != 2048 || size != 81920 {
		t.Errorf("partition begins at sector %d with %d sectors, want 2048 and 81920", start, size)
	}
}

func TestModuleNamesAreOneSpelling(t *testing.T) {
	if got := moduleName("nls_iso8859-1"); got != "nls_iso8859_1" {
		t.Errorf("got %s", got)
	}
}

func TestMissingModulesAreBuiltIn(t *testing.T) {
	modules, err := moduleSet{files: map[string]string{}}.load([]string{"virtio_pci"})
	if err != nil || len(modules) != 0 {
		t.Errorf("loaded %v (%v), want nothing for what the kernel has built in", modules, err)
	}
}

func TestModuleThatIsNoELFIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.ko")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := moduleSet{files: map[string]string{"x": file}}.load([]string{"x"})
	if err == nil || !strings.Contains(err.Error(), "x.ko") {
		t.Errorf("error %v, want one that names the file", err)
	}
}

func TestCommittedLocks(t *testing.T) {
	for _, g := range Guests() {
		text, err := os.ReadFile(filepath.Join("..", "locks", g.Lock()))
		if err != nil {
			t.Fatal(err)
		}
		lock, err := debian.ParseLock(bytes.NewReader(text))
		if err != nil || lock.Suite != g.spec.Suite {
			t.Errorf("lock of guest %s: %v, want one of %s", g.Name, err, g.spec.Suite)
		}
	}
}

func TestAllTextsOfTheSmallGuestAreInputs(t *testing.T) {
	before := Small().inputs
	if again := Small().inputs; !slices.Equal(again, before) {
		t.Error("the inputs have no fixed order")
	}
	for name, text := range smallTexts {
		smallTexts[name] = text + "more"
		if slices.Equal(Small().inputs, before) {
			t.Errorf("another text of %s finds the former disk", name)
		}
		smallTexts[name] = text
	}
}

func TestLocksIsFoundFromInsideTheCheckout(t *testing.T) {
	locks, err := Locks()
	if err != nil || filepath.Base(filepath.Dir(locks)) != "guest" {
		t.Errorf("found %s (%v), want tests/guest/locks", locks, err)
	}
}
