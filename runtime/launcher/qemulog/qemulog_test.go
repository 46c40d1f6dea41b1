package qemulog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// start is what libvirt writes at a start of QEMU.
const start = `2026-11-27 10:56:15.123+0000: starting up libvirt version: 11.3.0, package: 3 (Debian), qemu version: 10.0.13
LC_ALL=C \
PATH=/usr/sbin:/usr/bin \
/usr/bin/qemu-system-x86_64 \
-name guest=default_one,debug-threads=on \
-object '{"qom-type":"secret","id":"masterKey0","format":"raw","file":"/run/libvirt/master-key.aes"}' \
-append 'quiet
password=hunter2' \
-msg timestamp=on
`

func TestLastWordsAreThoseOfQEMUSinceItsStart(t *testing.T) {
	for name, c := range map[string]struct{ log, want string }{
		"silence":          {start, ""},
		"an empty log":     {"", ""},
		"a start half-way": {"2026-11-27 10:56:15.123+0000: starting up libvirt version: 11.3.0\nLC_ALL=C \\\n-object secret,id=x,data=hunter2 \\\n", ""},
		"an assertion of GLib's": {
			start + "**\nERROR:../tcg/region.c:262:tcg_region_alloc__locked: assertion failed: (!err)\nBail out! ERROR:../tcg/region.c:262\n" +
				"2026-11-27 10:58:15.123+0000: shutting down, reason=crashed\n",
			"ERROR:../tcg/region.c:262:tcg_region_alloc__locked: assertion failed: (!err); Bail out! ERROR:../tcg/region.c:262",
		},
		"another start": {
			start + "2026-11-27T10:56:16.000001Z qemu-system-x86_64: of the first\n" + start + "2026-11-27T10:56:17.000001Z qemu-system-x86_64: of the second\n",
			"qemu-system-x86_64: of the second",
		},
		"the same again and again": {start + strings.Repeat("2026-11-27T10:56:16.000001Z qemu-system-x86_64: full\n", 3), "qemu-system-x86_64: full"},
		"control characters":       {start + "qemu\x1b[31m: bad\x00\x07 \xff image\r\n", "qemu[31m: bad  image"},
		"a refused secret": {
			start + `2026-11-27T10:56:16.000001Z qemu-system-x86_64: -object {"qom-type":"secret","data":"hunter2 and more"}: no` + "\nqemu: -object secret,data=hunter2: no\n",
			"qemu-system-x86_64: -object …: no; qemu: -object … no",
		},
		"the last of many":              {start + "1\n2\n3\n4\n5\n6\n7\n8\n", "3; 4; 5; 6; 7; 8"},
		"the end of a line without one": {start + "killed in the mid", "killed in the mid"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lastWords(strings.NewReader(c.log)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLastWordsAreBounded(t *testing.T) {
	for name, said := range map[string]string{
		"one line":    strings.Repeat("ä", 1<<20) + "\n",
		"many lines":  strings.Repeat(strings.Repeat("x", 300)+"\nover\n", 1000),
		"no new line": strings.Repeat("z", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			got := lastWords(strings.NewReader(start + said))
			if len(got) > length || len(got) < length/2 || !utf8.ValidString(got) {
				t.Errorf("%d bytes: %q", len(got), got)
			}
		})
	}
}

func TestLastWordsAreReadFromAPlainFileOfTheFolderOnly(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write := func(path string) {
		if err := os.WriteFile(path, []byte(start+"something\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "one.log"))
	write(filepath.Join(dir, "plain.log"))
	for link, target := range map[string]string{
		"link.log": filepath.Join(outside, "one.log"), "inner.log": "plain.log", "folder": outside,
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe.log"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"plain.log": "something", "link.log": "", "inner.log": "", "folder/one.log": "", "pipe.log": "", "none.log": "", "../" + filepath.Base(outside) + "/one.log": "",
	} {
		if got := LastWords(dir, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := LastWords(filepath.Join(dir, "none"), "one.log"); got != "" {
		t.Errorf("no folder: %q", got)
	}
}
