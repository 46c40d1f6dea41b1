package beneath_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/beneath"
)

// rooted is a folder with files, folders and links, in another one that has secrets.
func rooted(t *testing.T) (*os.Root, string) {
	t.Helper()
	outside := t.TempDir()
	dir := filepath.Join(outside, "root")
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	for path, content := range map[string]string{"../secret": "secret", "disk": "disk", "a/b/deep": "deep"} {
		must(t, os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600))
	}
	for path, to := range map[string]string{
		"inside": "disk", "absolute": filepath.Join(dir, "disk"), "outside": "../secret", "nowhere": "nothing", "round": "round",
		"folder": "a", "a/up": "..", "away": "..", "process": "/proc/self",
	} {
		must(t, os.Symlink(to, filepath.Join(dir, path)))
	}
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root, dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoLinkIsFollowed(t *testing.T) {
	root, dir := rooted(t)
	for name, c := range map[string]struct {
		path  string
		flags int
		want  string
		fails error
	}{
		"a file":                       {path: "disk", want: "disk"},
		"a file of a folder":           {path: "a/b/deep", want: "deep"},
		"there and back":               {path: "a/../a/b/../../disk", want: "disk"},
		"here":                         {path: "./disk", want: "disk"},
		"a file to write":              {path: "disk", flags: os.O_RDWR, want: "disk"},
		"nothing":                      {path: "nothing", fails: fs.ErrNotExist},
		"no name":                      {path: "", fails: fs.ErrNotExist},
		"a file as a folder":           {path: "disk/x", fails: unix.ENOTDIR},
		"no folder":                    {path: "disk", flags: unix.O_DIRECTORY, fails: unix.ENOTDIR},
		"a link that stays inside":     {path: "inside", fails: unix.ELOOP},
		"one that is only held on to":  {path: "inside", flags: unix.O_PATH, fails: unix.ELOOP},
		"one of the whole path":        {path: "absolute", fails: unix.ELOOP},
		"one that leads out":           {path: "outside", fails: unix.ELOOP},
		"one that leads nowhere":       {path: "nowhere", fails: unix.ELOOP},
		"one that leads to itself":     {path: "round", fails: unix.ELOOP},
		"one to a folder":              {path: "folder", flags: unix.O_DIRECTORY, fails: unix.ELOOP},
		"one on the way":               {path: "folder/b/deep", fails: unix.ELOOP},
		"one on the way up":            {path: "a/up/disk", fails: unix.ELOOP},
		"one on the way out":           {path: "away/secret", fails: unix.ELOOP},
		"one to what the kernel makes": {path: "process/status", fails: unix.ELOOP},
		"out":                          {path: "../secret", fails: unix.EXDEV},
		"out and in again":             {path: "../root/disk", fails: unix.EXDEV},
		"out after a folder":           {path: "a/../../secret", fails: unix.EXDEV},
		"the root of all":              {path: filepath.Join(dir, "disk"), fails: unix.EXDEV},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := beneath.Open(root, c.path, c.flags)
			if c.fails != nil {
				if !errors.Is(err, c.fails) {
					t.Fatalf("got %v, %v; want %v", file, err, c.fails)
				}
				return
			}
			must(t, err)
			defer file.Close()
			if got, err := io.ReadAll(file); err != nil || string(got) != c.want {
				t.Errorf("it holds %q, %v; want %q", got, err, c.want)
			}
			if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("programs that are started get it: %x, %v", flags, err)
			}
		})
	}
}

func TestAFolderIsListed(t *testing.T) {
	root, _ := rooted(t)
	dir, err := beneath.Open(root, "a", os.O_RDONLY|unix.O_DIRECTORY)
	must(t, err)
	defer dir.Close()
	if entries, err := dir.ReadDir(-1); err != nil || len(entries) != 2 {
		t.Errorf("got %v, %v", entries, err)
	}
}

func TestAPipeHoldsNobodyUp(t *testing.T) {
	root, _ := rooted(t)
	pipe, err := beneath.Open(root, "pipe", os.O_RDONLY|unix.O_NONBLOCK)
	must(t, err)
	defer pipe.Close()
	if info, err := pipe.Stat(); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("got %v, %v", info, err)
	}
}

// Somebody swaps a file, and the folder that it is in, for links to a secret, again and again: what is opened is the file or
// nothing.
func TestWhatIsSwappedForALinkIsNotFollowed(t *testing.T) {
	root, dir := rooted(t)
	must(t, os.WriteFile(filepath.Join(dir, "deep"), []byte("secret"), 0o600))
	must(t, os.Symlink("../../../secret", filepath.Join(dir, "link")))
	must(t, os.Symlink(".", filepath.Join(dir, "way")))
	swaps := [][2]string{{"link", "a/b/deep"}, {"way", "a/b"}}
	stop, swapped := make(chan struct{}), sync.WaitGroup{}
	swapped.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			pair := swaps[n/2%2] // there, and back before the other is swapped
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, pair[0]), unix.AT_FDCWD, filepath.Join(dir, pair[1]), unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("swapping %v: %v", pair, err)
				return
			}
		}
	})
	opened := map[string]int{}
	for range 2000 {
		for _, path := range []string{"a/b/deep", "a/../a/b/deep"} {
			file, err := beneath.Open(root, path, os.O_RDONLY)
			if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EAGAIN) {
				opened[err.Error()]++
				continue
			}
			if err != nil {
				t.Errorf("opening %s: %v", path, err)
				continue
			}
			content, err := io.ReadAll(file)
			if err != nil || string(content) != "deep" {
				t.Errorf("%s holds %q, %v", path, content, err)
			}
			opened[string(content)]++
			_ = file.Close()
		}
	}
	close(stop)
	swapped.Wait()
	t.Logf("opened: %v", opened)
	if opened["deep"] == 0 {
		t.Error("the file was never opened")
	}
}

func TestAFolderThatIsClosedOpensNothing(t *testing.T) {
	root, _ := rooted(t)
	must(t, root.Close())
	if file, err := beneath.Open(root, "disk", os.O_RDONLY); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v, %v", file, err)
	}
}
