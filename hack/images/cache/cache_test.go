package cache

import (
	"os"
	"testing"
	"time"
)

func TestKeysTellListsApart(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{{}, {""}, {"a", "b"}, {"ab"}, {"a", "", "b"}, {"b", "a"}, {"1:a"}, {"a1:b"}} {
		key := Key(parts...)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have the same key", parts, other)
		}
		seen[key] = parts
		if len(key) != 64 || key != Key(parts...) {
			t.Errorf("key %s of %q is not 64 characters that stay", key, parts)
		}
	}
}

func TestPruneKeepsTheNewest(t *testing.T) {
	d := Dir(t.TempDir())
	for i, name := range []string{"x-1", "x-2", "x-3", "y-1"} {
		if err := os.WriteFile(d.Path(name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(int64(1000-i), 0)
		if err := os.Chtimes(d.Path(name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	if err := Touch(d.Path("x-3")); err != nil {
		t.Fatal(err)
	}
	if err := d.Prune("x-*", 2); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"x-1": true, "x-2": false, "x-3": true, "y-1": true} {
		if Exists(d.Path(name)) != want {
			t.Errorf("after pruning %s exists: %t, want %t", name, !want, want)
		}
	}
}
