package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)

// layOut makes the same files in a new folder, in the given order, with times of now.
func layOut(t *testing.T, names []string) string {
	t.Helper()
	root := t.TempDir()
	for _, n := range names {
		file := filepath.Join(root, n)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("content of "+n), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func pack(t *testing.T, tr Tree) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tr.WriteTar(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func names(t *testing.T, packed []byte) []string {
	t.Helper()
	var list []string
	r := tar.NewReader(bytes.NewReader(packed))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(epoch.Truncate(time.Second)) {
			t.Errorf("%s has time %s, want the tree's", h.Name, h.ModTime)
		}
		list = append(list, h.Name)
	}
}

func TestTarDependsOnlyOnContent(t *testing.T) {
	files := []string{"b/two", "a-b", "a/one", "a/z/deep", "c"}
	first := pack(t, Tree{Root: layOut(t, files), Time: epoch})
	slices.Reverse(files)
	second := pack(t, Tree{Root: layOut(t, files), Time: epoch})
	if !bytes.Equal(first, second) {
		t.Error("two folders of the same content gave different tar streams")
	}
	want := []string{"a/", "a/one", "a/z/", "a/z/deep", "a-b", "b/", "b/two", "c"}
	if got := names(t, first); !slices.Equal(got, want) {
		t.Errorf("order is %v, want %v", got, want)
	}
}

func TestExtraWinsAndGetsItsFolders(t *testing.T) {
	packed := pack(t, Tree{
		Root: layOut(t, []string{"etc/passwd"}), Time: epoch,
		Extra: []Entry{
			{Path: "/etc/passwd", Mode: 0o644, Data: "root"},
			{Path: "var/lib/x", Mode: fs.ModeSymlink | 0o777, Data: "../y"},
			{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		},
	})
	r := tar.NewReader(bytes.NewReader(packed))
	seen := map[string]*tar.Header{}
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		seen[h.Name] = h
		if h.Name == "etc/passwd" {
			if data, _ := io.ReadAll(r); string(data) != "root" {
				t.Errorf("etc/passwd holds %q, want the extra entry's content", data)
			}
		}
	}
	if h := seen["tmp/"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("tmp is %+v, want mode 1777", h)
	}
	if h := seen["var/lib/x"]; h == nil || h.Linkname != "../y" || seen["var/lib/"] == nil {
		t.Errorf("link is %+v, want one to ../y with its folders", h)
	}
}

func TestHardLinksStayLinks(t *testing.T) {
	root := layOut(t, []string{"a"})
	if err := os.Link(filepath.Join(root, "a"), filepath.Join(root, "b")); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(bytes.NewReader(pack(t, Tree{Root: root, Time: epoch})))
	_, _ = r.Next()
	h, err := r.Next()
	if err != nil || h.Typeflag != tar.TypeLink || h.Linkname != "a" {
		t.Errorf("second name is %+v (%v), want a link to a", h, err)
	}
}

func TestSkipNames(t *testing.T) {
	skip := SkipNames(map[string]bool{"usr/bin/apt": true, "usr/lib": true}, []string{"var/cache/**", "usr/share/doc", "etc/*-", "usr/share/doc/*/[^c]*"})
	for name, c := range map[string]struct {
		path string
		dir  bool
		want bool
	}{
		"a file of a dropped package":                    {"usr/bin/apt", false, true},
		"a folder of a dropped package may hold more":    {"usr/lib", true, false},
		"what is in a folder of which content goes":      {"var/cache/apt/pkgcache.bin", false, true},
		"the folder of which content goes":               {"var/cache", true, false},
		"a pattern matches one component":                {"etc/passwd-", false, true},
		"a pattern does not reach into folders":          {"etc/x/passwd-", false, false},
		"a folder named by a pattern, all that is in it": {"usr/share/doc", true, true},
		"any other file":                                 {"usr/bin/sh", false, false},
	} {
		if got := skip(c.path, c.dir); got != c.want {
			t.Errorf("%s: skip(%s) = %t, want %t", name, c.path, got, c.want)
		}
	}
}

func TestClosureOfThisProgram(t *testing.T) {
	missing, err := Tree{Extra: []Entry{{Path: "x", Data: "no program"}}}.MissingLibraries()
	if err != nil || len(missing) != 0 {
		t.Errorf("a tree without programs misses %v (%v), want nothing", missing, err)
	}
	root := t.TempDir()
	if err := os.Symlink("/usr/share/b", filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	keep := map[string]bool{"a": true}
	if err := WithLibraries(root, keep); err != nil {
		t.Fatal(err)
	}
	if !keep["usr/share/b"] {
		t.Errorf("kept %v, want what the link leads to as well", keep)
	}
}
