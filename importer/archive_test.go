package importer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/archive"
	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// newFiles makes a directory with files of every kind that an archive may have.
func newFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	long := strings.Repeat("long", 40)
	for _, name := range []string{"etc/conf.d", "usr/bin", "closed/inner", "empty", long} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, file := range map[string]struct {
		data []byte
		mode fs.FileMode
	}{
		"disk.raw":          {newDisk(), 0o640},
		"etc/conf.d/a file": {[]byte("line\n"), 0o444},
		"usr/bin/tool":      {[]byte("#!/bin/sh\n"), 0o755},
		"usr/bin/lends":     {[]byte("#!/bin/sh\n"), 0o755 | fs.ModeSetuid},
		"closed/inner/x":    {[]byte("x"), 0o400},
		"nothing":           {nil, 0o600},
		long + "/ünï":       {[]byte("y"), 0o644},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, file.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, file.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(1_600_000_000, 0)); err != nil {
			t.Fatal(err)
		}
	}
	must(t, os.Symlink("usr/bin", filepath.Join(dir, "bin")))
	must(t, os.Symlink("/usr/bin/tool", filepath.Join(dir, "etc", "absolute")))
	must(t, os.Link(filepath.Join(dir, "nothing"), filepath.Join(dir, "etc", "same")))
	for _, name := range []string{"closed/inner", "closed"} { // nobody writes there any more
		must(t, os.Chmod(filepath.Join(dir, name), 0o555))
	}
	t.Cleanup(func() { open(dir) })
	return dir
}

// open lets the test's directories be removed.
func open(dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listing describes what is below dir, a line for each name.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			fmt.Fprintf(&text, "%s -> %s\n", name, to)
		case info.IsDir():
			fmt.Fprintf(&text, "%s/ %o\n", name, info.Mode().Perm())
		default:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "%s %o %d %d %d\n", name, info.Mode()&(fs.ModePerm|fs.ModeSetuid), info.ModTime().Unix(), info.Sys().(*syscall.Stat_t).Nlink, len(bytes.TrimRight(data, "\x00")))
		}
		return nil
	}))
	return text.String()
}

// doUnpack imports an archive into a new directory.
func doUnpack(t *testing.T, url string, change func(*importer.Options)) imported {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { open(dir) })
	options := importer.Options{
		Source:  &source.Options{URL: url, RetryFor: 5 * time.Minute, IdleTimeout: 5 * time.Minute},
		Archive: true, Target: target.Options{Path: dir},
	}
	if change != nil {
		change(&options)
	}
	result, err := importer.Run(context.Background(), options, nil)
	return imported{result, err, filepath.Join(options.Target.Path, "x")}
}

func TestArchivesOfTar(t *testing.T) {
	program(t, "tar")
	files := newFiles(t)
	// The owner's rights are lent to nobody.
	want := strings.Replace(listing(t, files), "usr/bin/lends 40000755", "usr/bin/lends 755", 1)
	if !strings.Contains(want, "lends 755") {
		t.Fatalf("the files are\n%s", want)
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	make := func(name string, options ...string) string {
		run(t, "tar", append(append([]string{"-C", files, "-cf", at(name)}, options...), ".")...)
		return at(name)
	}
	plain := make("gnu.tar", "--format=gnu")
	for _, file := range []string{
		plain, make("pax.tar", "--format=pax"), make("sparse.tar", "--format=gnu", "-S"), make("sparse-pax.tar", "--format=pax", "-S"),
		pack(t, plain, at("gnu.tar.gz"), "gzip", "-c"), pack(t, plain, at("gnu.tar.xz"), "xz", "-c"), pack(t, plain, at("gnu.tar.zst"), "zstd", "-qc"),
	} {
		for _, noRanges := range []bool{false, true} {
			if noRanges && !strings.HasPrefix(filepath.Base(file), "gnu.tar") {
				continue
			}
			t.Run(fmt.Sprintf("%s, ranges %t", filepath.Base(file), !noRanges), func(t *testing.T) {
				s := serve(t, dir)
				s.noRanges = noRanges
				got := doUnpack(t, s.URL+"/"+filepath.Base(file), nil)
				must(t, got.err)
				if have := listing(t, filepath.Dir(got.path)); have != want {
					t.Errorf("there is\n%s\nwant\n%s", have, want)
				}
				if got.result.Digest != "" || got.result.Written > 7<<20 || got.result.VirtualSize < diskSize {
					t.Errorf("the result is %+v", got.result)
				}
				data, err := os.ReadFile(filepath.Join(filepath.Dir(got.path), "disk.raw"))
				if err != nil || !bytes.Equal(data, newDisk()) {
					t.Errorf("the disk in the archive is another one (%v)", err)
				}
			})
		}
	}
	t.Run("over a connection that breaks", func(t *testing.T) {
		s := serve(t, dir)
		s.dieAfter = 700_000
		s.deaths.Store(12)
		got := doUnpack(t, s.URL+"/gnu.tar", nil)
		must(t, got.err)
		if have := listing(t, filepath.Dir(got.path)); have != want {
			t.Errorf("there is\n%s\nwant\n%s", have, want)
		}
	})
	t.Run("with a checksum", func(t *testing.T) {
		url := serve(t, dir).URL + "/gnu.tar.gz"
		wrong := "sha256:" + strings.Repeat("0", 64)
		doUnpack(t, url, func(o *importer.Options) { o.Checksum = wrong }).wantFailure(t, transfer.ChecksumMismatch, wrong)
	})
	t.Run("that is larger than the volume", func(t *testing.T) {
		doUnpack(t, serve(t, dir).URL+"/gnu.tar", func(o *importer.Options) { o.Target.Size = 1 << 20 }).wantFailure(t, transfer.TooSmall, "1048576")
	})
	t.Run("that ends early", func(t *testing.T) {
		data, err := os.ReadFile(plain)
		must(t, err)
		cut := writeFile(t, "cut.tar", data[:len(data)/2])
		doUnpack(t, serve(t, filepath.Dir(cut)).URL+"/cut.tar", nil).wantFailure(t, transfer.InvalidImage, "too early")
		packed, err := os.ReadFile(at("gnu.tar.gz"))
		must(t, err)
		packed[len(packed)-6] ^= 1 // in what proves the content
		broken := writeFile(t, "broken.tar.gz", packed)
		doUnpack(t, serve(t, filepath.Dir(broken)).URL+"/broken.tar.gz", nil).wantFailure(t, transfer.InvalidImage, "gz")
	})
	t.Run("again over what an attempt left that was killed in the end", func(t *testing.T) {
		url := serve(t, dir).URL + "/gnu.tar"
		got := doUnpack(t, url, func(o *importer.Options) {
			left := o.Target.Path
			must(t, os.MkdirAll(filepath.Join(left, archive.Staging, "usr"), 0o700))
			must(t, os.MkdirAll(filepath.Join(left, "closed", "inner"), 0o700))
			must(t, os.MkdirAll(filepath.Join(left, "nothing", "was", "a", "directory"), 0o700))
			must(t, os.WriteFile(filepath.Join(left, "closed", "inner", "x"), []byte("another"), 0o400))
			must(t, os.WriteFile(filepath.Join(left, "usr"), []byte("was a file"), 0o400))
			must(t, os.Chmod(filepath.Join(left, "closed", "inner"), 0o555))
			must(t, os.Chmod(filepath.Join(left, "closed"), 0o555))
		})
		must(t, got.err)
		if have := listing(t, filepath.Dir(got.path)); have != want {
			t.Errorf("there is\n%s\nwant\n%s", have, want)
		}
	})
}

// entries is an archive of the headers, each file with its name as content.
func entries(t *testing.T, headers ...tar.Header) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o644
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		must(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(h.Name))
			must(t, err)
		}
	}
	must(t, w.Close())
	return writeFile(t, "files.tar", out.Bytes())
}

func TestArchivesThatAreRefused(t *testing.T) {
	outside := t.TempDir()
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	text := writeFile(t, "text", []byte(strings.Repeat("no archive ", 100)))
	raw := writeFile(t, "zeros", make([]byte, 1<<20))
	for name, c := range map[string]struct {
		path   string
		reason transfer.Reason
		words  string
	}{
		"a name with dots":                   {entries(t, file("a/../../b")), transfer.InvalidImage, "leads out"},
		"a file behind a link out":           {entries(t, link("l", outside), file("l/b")), transfer.InvalidImage, `"l/b"`},
		"a file behind a relative link out":  {entries(t, link("l", "../.."), file("l/b")), transfer.InvalidImage, `"l/b"`},
		"a directory behind a link out":      {entries(t, link("l", outside), tar.Header{Typeflag: tar.TypeDir, Name: "l/d"}), transfer.InvalidImage, `"l/d"`},
		"a link that is a file's second":     {entries(t, link("l", filepath.Join(outside, "x")), tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "l/../../x"}), transfer.InvalidImage, "leads out"},
		"a second name of what is not there": {entries(t, tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "none"}), transfer.InvalidImage, `"h"`},
		"a device":                           {entries(t, tar.Header{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}), transfer.InvalidImage, `"sda"`},
		"a terminal":                         {entries(t, tar.Header{Typeflag: tar.TypeChar, Name: "tty", Devmajor: 5}), transfer.InvalidImage, `"tty"`},
		"a pipe":                             {entries(t, tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}), transfer.InvalidImage, `"pipe"`},
		"a file below a file":                {entries(t, file("a"), file("a/b")), transfer.InvalidImage, `"a/b"`},
		"links in a circle":                  {entries(t, link("a", "b"), link("b", "a"), file("a/c")), transfer.InvalidImage, `"a/c"`},
		"the name of the work":               {entries(t, file(archive.Staging+"/x")), transfer.InvalidImage, archive.Staging},
		"a name that is too long":            {entries(t, file(strings.Repeat("d/", 3000)+"f")), transfer.InvalidImage, "6001 bytes"},
		"a part that is too long":            {entries(t, file(strings.Repeat("n", 300))), transfer.InvalidImage, "nnn"},
		"an archive of nothing":              {entries(t), transfer.InvalidImage, "empty"},
		"zeros":                              {raw, transfer.InvalidImage, "empty"},
		"a text":                             {text, transfer.WrongFormat, "no tar archive"},
	} {
		t.Run(name, func(t *testing.T) {
			doUnpack(t, serve(t, filepath.Dir(c.path)).URL+"/"+filepath.Base(c.path), nil).wantFailure(t, c.reason, c.words)
		})
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside of the volume there is %v (%v)", left, err)
	}
}

func TestOddArchivesThatAreTaken(t *testing.T) {
	file := func(name string, mode int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, ModTime: time.Unix(1, 0)}
	}
	dir := func(name string, mode int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}
	}
	for name, c := range map[string]struct{ path, want string }{
		"a name from the root":             {entries(t, file("/etc/hosts", 0o600)), "etc/ 755\netc/hosts 600 1 1 10\n"},
		"a file twice":                     {entries(t, file("a", 0o600), file("a", 0o640)), "a 640 1 1 1\n"},
		"a file in the place of a link":    {entries(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc/passwd"}, file("a", 0o600)), "a 600 1 1 1\n"},
		"a file below a link that is in":   {entries(t, dir("d", 0o755), tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "d"}, file("l/a", 0o600)), "d/ 755\nd/a 600 1 1 3\nl -> d\n"},
		"a closed directory gets a file":   {entries(t, dir("d", 0o500), file("d/a", 0o600)), "d/ 500\nd/a 600 1 1 3\n"},
		"a closed directory opened again":  {entries(t, dir("d", 0o500), dir("d", 0o755)), "d/ 755\n"},
		"a file where a closed one was":    {entries(t, dir("d", 0o500), dir("d/e", 0o500), file("d", 0o600)), "d 600 1 1 1\n"},
		"the volume's own directory":       {entries(t, dir("./", 0o111), file("./a", 0o600)), "a 600 1 1 3\n"},
		"a header for all files":           {entries(t, tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, file("a", 0o600)), "a 600 1 1 1\n"},
		"a file that is its own directory": {entries(t, file("a/./b", 0o600)), "a/ 755\na/b 600 1 1 5\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := doUnpack(t, serve(t, filepath.Dir(c.path)).URL+"/files.tar", nil)
			must(t, got.err)
			if have := listing(t, filepath.Dir(got.path)); have != c.want {
				t.Errorf("there is\n%s\nwant\n%s", have, c.want)
			}
		})
	}
}

func TestWhatIsOnTheVolumeStays(t *testing.T) {
	path := entries(t, tar.Header{Typeflag: tar.TypeReg, Name: "new", Mode: 0o600, ModTime: time.Unix(1, 0)})
	got := doUnpack(t, serve(t, filepath.Dir(path)).URL+"/files.tar", func(o *importer.Options) {
		must(t, os.Mkdir(filepath.Join(o.Target.Path, "lost+found"), 0o700))
	})
	must(t, got.err)
	if have, want := listing(t, filepath.Dir(got.path)), "lost+found/ 700\nnew 600 1 1 3\n"; have != want {
		t.Errorf("there is\n%s\nwant\n%s", have, want)
	}
}

// TestAFullVolume unpacks onto a file system that is too small, where the test may mount one.
func TestAFullVolume(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,nr_inodes=1000"); err != nil {
		program(t, "unshare")
		command := exec.Command("unshare", "--user", "--map-root-user", "--mount", os.Args[0], "-test.run=^TestAFullVolume$")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	var headers []tar.Header
	for n := range 2_000 { // names take room too
		headers = append(headers, tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("d%d", n)})
	}
	path := entries(t, headers...)
	doUnpack(t, serve(t, filepath.Dir(path)).URL+"/files.tar", func(o *importer.Options) { o.Target.Path = dir }).wantFailure(t, transfer.NoSpace, "free space")
}
