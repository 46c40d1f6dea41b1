package debian

import (
	"bytes"
	"strings"
	"testing"
)

const (
	sumA     = "1111111111111111111111111111111111111111111111111111111111111111"
	sumB     = "2222222222222222222222222222222222222222222222222222222222222222"
	goodLock = `# Locked Debian packages: archive, path, size, SHA-256. Made anew by --update-locks.
suite trixie
resolved 2026-11-20T18:46:40Z
debian pool/main/b/bash/bash_5.2.37-2+b10_amd64.deb 1500792 ` + sumA + `
debian-security pool/updates/main/q/qemu/qemu-utils_10.0.13+ds-0+deb13u1_amd64.deb 2024216 ` + sumB + "\n"
)

func TestLockSurvivesFormatAndParse(t *testing.T) {
	lock, err := ParseLock(strings.NewReader(goodLock))
	if err != nil {
		t.Fatal(err)
	}
	if got := lock.Format(); !bytes.Equal(got, []byte(goodLock)) {
		t.Errorf("formatted:\n%s\nwant:\n%s", got, goodLock)
	}
	p := lock.Packages[1]
	if p.Name() != "qemu-utils" || p.Version() != "10.0.13+ds-0+deb13u1" || p.Archive != "debian-security" {
		t.Errorf("package is %+v named %s %s", p, p.Name(), p.Version())
	}
}

func TestFormatSorts(t *testing.T) {
	lock, err := ParseLock(strings.NewReader(goodLock))
	if err != nil {
		t.Fatal(err)
	}
	lock.Packages[0], lock.Packages[1] = lock.Packages[1], lock.Packages[0]
	if got := lock.Format(); !bytes.Equal(got, []byte(goodLock)) {
		t.Errorf("formatted:\n%s\nwant it sorted", got)
	}
}

func TestParseLockRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an empty file":              {"", "incomplete lock"},
		"no packages":                {"suite trixie\nresolved 2026-11-20T18:46:40Z\n", "incomplete lock"},
		"a time that is none":        {"resolved yesterday\n", "line 1: resolved"},
		"a size that is no number":   {"suite x\ndebian pool/a_1_all.deb many " + sumA + "\n", `line 2: size "many"`},
		"a short hash":               {"debian pool/a_1_all.deb 5 abc\n", "not a SHA-256"},
		"a path that climbs":         {"debian pool/../../a_1_all.deb 5 " + sumA + "\n", "not a plain path"},
		"a line of the wrong length": {"debian pool/a_1_all.deb\n", "line 1: want"},
	} {
		if _, err := ParseLock(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

func TestParseURIs(t *testing.T) {
	out := `'http://mirror.example.org/debian/pool/main/b/busybox/busybox-static_1.35.0-4%2bdeb12u1_amd64.deb' busybox-static_1%3a1.35.0-4+deb12u1_amd64.deb 928188 MD5Sum:f6f1
'http://mirror.example.org/debian-security/pool/updates/main/l/linux/linux-image-6.1.0-56-cloud-amd64_6.1.192-2_amd64.deb' linux-image.deb 26713492 SHA256:aa
noise
`
	all, err := parseURIs(out, nil)
	if err != nil || len(all) != 2 {
		t.Fatalf("read %v (%v), want two packages", all, err)
	}
	want := wantedPackage{"busybox-static", "debian", "pool/main/b/busybox/busybox-static_1.35.0-4+deb12u1_amd64.deb"}
	if all[0] != want {
		t.Errorf("first is %+v, want %+v", all[0], want)
	}
	kept, err := parseURIs(out, []string{`linux-image-[0-9].*`})
	if err != nil || len(kept) != 1 || kept[0].archive != "debian-security" {
		t.Errorf("kept %v (%v), want only the kernel", kept, err)
	}
	if _, err := parseURIs("nothing", nil); err == nil {
		t.Error("no package at all is no error")
	}
}

func TestParseRecords(t *testing.T) {
	records := parseRecords("Package: a\nFilename: pool/a.deb\nSize: 7\nSHA256: " + sumA + "\n\nPackage: b\nFilename: pool/b.deb\nSize: 8\n")
	if len(records) != 1 || records["pool/a.deb"].Size != 7 || records["pool/a.deb"].SHA256 != sumA {
		t.Errorf("read %v, want only the record that has a hash", records)
	}
}

func TestMergedUsr(t *testing.T) {
	for path, want := range map[string]string{"bin/sh": "usr/bin/sh", "lib/x/y": "usr/lib/x/y", "bin": "bin", "etc/passwd": "etc/passwd", "usr/bin/sh": "usr/bin/sh"} {
		if got := mergedUsr(path); got != want {
			t.Errorf("mergedUsr(%s) = %s, want %s", path, got, want)
		}
	}
}
