package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/hack/images/debian"
	"github.com/slipway-vm/slipway/hack/images/oci"
	"github.com/slipway-vm/slipway/hack/images/tree"
)

func testLock() *debian.Lock {
	return &debian.Lock{Suite: "trixie", Resolved: time.Unix(1700000000, 0), Packages: []debian.Package{{Archive: "debian", Path: "pool/a_1_all.deb", Size: 1, SHA256: strings.Repeat("a", 64)}}}
}

func TestBaseKeyFollowsItsInputs(t *testing.T) {
	plain := baseLayer{version: "1", drop: []string{"x"}, files: []tree.Entry{file("a", 0o644, "b")}}
	key := baseKey(&plain, testLock())
	if key != baseKey(&plain, testLock()) {
		t.Error("the same inputs have two keys")
	}
	for name, change := range map[string]func(*baseLayer, *debian.Lock){
		"a newer package":         func(_ *baseLayer, l *debian.Lock) { l.Packages[0].Path = "pool/a_2_all.deb" },
		"the recipe's version":    func(b *baseLayer, _ *debian.Lock) { b.version = "2" },
		"a package that is kept":  func(b *baseLayer, _ *debian.Lock) { b.drop = nil },
		"a file's content":        func(b *baseLayer, _ *debian.Lock) { b.files = []tree.Entry{file("a", 0o644, "c")} },
		"a file's mode":           func(b *baseLayer, _ *debian.Lock) { b.files = []tree.Entry{file("a", 0o600, "b")} },
		"a pattern to leave out":  func(b *baseLayer, _ *debian.Lock) { b.skip = []string{"usr/x"} },
		"a list of what to keep":  func(b *baseLayer, _ *debian.Lock) { b.only = []string{"libc6"} },
		"the time of the locking": func(_ *baseLayer, l *debian.Lock) { l.Resolved = l.Resolved.Add(time.Second) },
	} {
		changed, lock := plain, testLock()
		change(&changed, lock)
		if baseKey(&changed, lock) == key {
			t.Errorf("%s does not change the key", name)
		}
	}
}

func TestArchiveKeyFollowsTheProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "p")
	key := func(content string) string {
		if err := os.WriteFile(program, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		k, err := archiveKey(recipe{name: "x"}, []oci.Layer{{Digest: "sha256:1"}}, []tree.Entry{binary("p", program)})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	one := key("1")
	if one != key("1") || one == key("2") {
		t.Error("the key does not follow the program's content")
	}
}

func TestChooseRecipesNamesTheKnownOnes(t *testing.T) {
	all, err := chooseRecipes(nil)
	if err != nil || len(all) != 4 {
		t.Fatalf("chose %d recipes (%v), want all four", len(all), err)
	}
	if _, err := chooseRecipes([]string{"slipwy"}); err == nil || !strings.Contains(err.Error(), "slipway-launcher") {
		t.Errorf("error %v, want one that names the known images", err)
	}
}

func TestIndexSurvivesWriteAndRead(t *testing.T) {
	checkout := t.TempDir()
	empty, err := readIndex(checkout)
	if err != nil || len(empty) != 0 {
		t.Fatalf("index before any build is %v (%v), want none", empty, err)
	}
	want := builtImage{Ref: "registry.local/x:1", Archive: "/x.tar", Digest: "sha256:1", Size: 5}
	if err := writeIndex(checkout, map[string]builtImage{"x": want}); err != nil {
		t.Fatal(err)
	}
	got, err := readIndex(checkout)
	if err != nil || got["x"] != want {
		t.Errorf("read %v (%v), want %v", got, err, want)
	}
}

// Every committed lock must be readable, and of the suite that its recipe asks for.
func TestCommittedLocks(t *testing.T) {
	for _, r := range recipes() {
		if r.base == nil {
			continue
		}
		text, err := os.Open(filepath.Join("locks", r.base.lock))
		if err != nil {
			t.Fatal(err)
		}
		lock, err := debian.ParseLock(text)
		if err != nil || lock.Suite != r.base.spec.Suite {
			t.Errorf("lock of %s: suite of %+v (%v), want %s", r.name, lock, err, r.base.spec.Suite)
		}
		_ = text.Close()
	}
}
