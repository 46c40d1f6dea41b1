package hostdisk

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/fixture/need"
)

func folder(t *testing.T) (*os.File, string) {
	t.Helper()
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { _ = file.Close() })
	return file, dir
}

func TestAFileIsMadeSparseAndGivenAway(t *testing.T) {
	need.Root(t, "give files away")
	for name, make := range map[string]func(File, int, int64) error{"whole": File.makeWhole, "in place": File.makeInPlace} {
		t.Run(name, func(t *testing.T) {
			at, dir := folder(t)
			if err := make(File{Name: "disk.img", Owner: 107}, int(at.Fd()), 1<<30); err != nil {
				t.Fatal(err)
			}
			var stat unix.Stat_t
			if err := unix.Lstat(filepath.Join(dir, "disk.img"), &stat); err != nil {
				t.Fatal(err)
			}
			if stat.Size != 1<<30 || stat.Blocks > 16 || stat.Uid != 107 || stat.Gid != 107 || stat.Mode != unix.S_IFREG|0o660 {
				t.Errorf("got %+v", stat)
			}
			if err := make(File{Name: "disk.img", Owner: 107}, int(at.Fd()), 1); err == nil || !strings.Contains(err.Error(), "exists") {
				t.Errorf("a second one: %v", err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("the folder has %v, %v", entries, err)
			}
		})
	}
}

func TestAFileIsMadeOnce(t *testing.T) {
	need.Root(t, "give files away")
	at, dir := folder(t)
	if size, err := Make(at, File{Name: "disk.img", Capacity: 1000, Owner: 107, Limits: LimitsOf(nil)}); err != nil || size != 1024 {
		t.Fatalf("%d, %v", size, err)
	}
	if size, err := Make(at, File{Name: "disk.img", Capacity: 4096, Owner: 107, Limits: LimitsOf(nil)}); err != nil || size != 0 {
		t.Errorf("what it made itself: %d, %v", size, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "disk.img")); err != nil || info.Size() != 1024 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestWhatIsThereStaysAsItIs(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	for name, make := range map[string]func(path string) error{
		"a file of another":     func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"a folder":              func(path string) error { return os.Mkdir(path, 0o700) },
		"a link out of it":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a link to what is not": func(path string) error { return os.Symlink(outside, path) },
	} {
		t.Run(name, func(t *testing.T) {
			at, dir := folder(t)
			path := filepath.Join(dir, "disk.img")
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			size, err := Make(at, File{Name: "disk.img", Capacity: 1 << 20, Owner: 107, Limits: LimitsOf(nil)})
			if err != nil || size != 0 {
				t.Errorf("%d, %v", size, err)
			}
			if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
				t.Errorf("%+v became %+v, %v", before, after, err)
			}
		})
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a link was followed")
	}
}

func TestHowMuchOfItsCapacityAFileGets(t *testing.T) {
	for name, c := range map[string]struct {
		capacity, available, want int64
		says                      *v1.DeveloperConfiguration
		wantError                 string
	}{
		"all of it":            {capacity: 1 << 30, available: 1 << 30, want: 1 << 30},
		"whole sectors":        {capacity: 513, available: 1 << 20, want: 1024},
		"a little less":        {capacity: 100 << 20, available: 91<<20 + 5, want: 91 << 20},
		"a tenth less":         {capacity: 1000 << 20, available: 900 << 20, want: 900 << 20},
		"more than that":       {capacity: 1000 << 20, available: 899 << 20, wantError: "not enough space, demanded size 1048576000 B is bigger than available space 942669824 B, also after taking 10 % toleration into account"},
		"more than there is":   {capacity: 1 << 62, available: 1 << 40, wantError: "not enough space"},
		"nothing is available": {capacity: 1, wantError: "not enough space"},
		"a quarter less, where that is borne": {
			capacity: 1000 << 20, available: 750 << 20, want: 750 << 20, says: &v1.DeveloperConfiguration{LessPVCSpaceToleration: 25},
		},
		"more than that, too": {
			capacity: 1000 << 20, available: 749 << 20, says: &v1.DeveloperConfiguration{LessPVCSpaceToleration: 25}, wantError: "available space 785383424 B, also after taking 25 % toleration into account",
		},
		"a tenth less, where but a hundredth is borne": {
			capacity: 1000 << 20, available: 900 << 20, says: &v1.DeveloperConfiguration{LessPVCSpaceToleration: 1}, wantError: "also after taking 1 % toleration into account",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fit(File{Name: "disk.img", Capacity: c.capacity, Limits: LimitsOf(c.says)}, c.available)
			if got != c.want || (err != nil) != (c.wantError != "") || err != nil && !strings.Contains(err.Error(), c.wantError) {
				t.Errorf("got %d, %v; want %d, %q", got, err, c.want, c.wantError)
			}
		})
	}
	at, _ := folder(t)
	if _, err := Make(at, File{Name: "disk.img", Owner: 107, Limits: LimitsOf(nil)}); err == nil || !strings.Contains(err.Error(), "set hostDisk.capacity") {
		t.Errorf("without a capacity: %v", err)
	}
}

func TestWhatAFileIsHeldTo(t *testing.T) {
	for name, c := range map[string]struct {
		says v1.DeveloperConfiguration
		want Limits
	}{
		"nothing":                  {want: Limits{Tolerance: 10, Reserve: 131072}},
		"a tolerance":              {says: v1.DeveloperConfiguration{LessPVCSpaceToleration: 25}, want: Limits{Tolerance: 25, Reserve: 131072}},
		"a reserve":                {says: v1.DeveloperConfiguration{MinimumReservePVCBytes: 1 << 30}, want: Limits{Tolerance: 10, Reserve: 1 << 30}},
		"all may be missing":       {says: v1.DeveloperConfiguration{LessPVCSpaceToleration: 100}, want: Limits{Tolerance: 10, Reserve: 131072}},
		"more than is asked for":   {says: v1.DeveloperConfiguration{LessPVCSpaceToleration: -5}, want: Limits{Tolerance: 10, Reserve: 131072}},
		"more than numbers can be": {says: v1.DeveloperConfiguration{MinimumReservePVCBytes: math.MaxUint64}, want: Limits{Tolerance: 10, Reserve: math.MaxUint64}},
	} {
		if got := LimitsOf(&c.says); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestWhatIsReservedIsLeftFree(t *testing.T) {
	for name, c := range map[string]struct {
		blocks, reserve uint64
		want            int64
	}{
		"all but the reserve":      {blocks: 1000, reserve: 96 << 10, want: 976 * 4096},
		"no more than the reserve": {blocks: 24, reserve: 96 << 10},
		"less than the reserve":    {blocks: 1, reserve: math.MaxUint64},
		"no end":                   {blocks: math.MaxUint64 / 4096, reserve: 1, want: math.MaxInt64},
	} {
		if got := (Limits{Reserve: c.reserve}).available(unix.Statfs_t{Bavail: c.blocks, Bsize: 4096}); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// A file system that has not what is to be left free gets no file.
func TestNothingIsMadeOfTheReserve(t *testing.T) {
	at, dir := folder(t)
	limits := LimitsOf(&v1.DeveloperConfiguration{MinimumReservePVCBytes: 1 << 62})
	if size, err := Make(at, File{Name: "disk.img", Capacity: 4096, Limits: limits}); err == nil || !strings.Contains(err.Error(), "bigger than available space 0 B") {
		t.Errorf("%d, %v", size, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}
