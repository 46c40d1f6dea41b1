// Package recipe builds the guests that tests boot: a tiny one that is up in seconds under emulation, the same on a disk that keeps what is
// written, and a Debian one. All are made from locked Debian packages and kept in the user's cache by the content of their inputs.
package recipe

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/debian"
)

// Guest is a guest that can be built.
type Guest struct {
	// Name is tiny, small or debian.
	Name string
	// Disk is the disk's file name in the guest's cache folder.
	Disk string
	// locked names the file of locked packages, locks/<locked>.txt, and spec says which those are.
	locked string
	spec   debian.Spec
	// inputs is all else that the result depends on.
	inputs []string
	// build makes the disk at path in the scratch folder work.
	build func(ctx context.Context, b scratch, path string) error
}

// scratch is what a build works with.
type scratch struct {
	cache cache.Dir
	lock  *debian.Lock
	work  string
}

// Guests lists all guests.
func Guests() []Guest { return []Guest{Tiny(), Small(), Debian()} }

// Lock names the guest's file of locked packages, which guests share.
func (g Guest) Lock() string { return g.locked + ".txt" }

// keptGuests is how many versions of one guest stay in the cache.
const keptGuests = 4

// Build returns the path of the guest's disk, a qcow2 file, making it when its inputs changed. locks is the folder of lock files.
// The disk is shared by all users of the cache: use it read-only, or copy it.
func (g Guest) Build(ctx context.Context, locks string, updateLock bool) (string, error) {
	dir, err := cache.Default()
	if err != nil {
		return "", err
	}
	release, err := dir.Lock("guest-" + g.Name)
	if err != nil {
		return "", err
	}
	defer release()
	lock, err := debian.LoadLock(ctx, dir, filepath.Join(locks, g.Lock()), g.spec, updateLock)
	if err != nil {
		return "", err
	}
	key := cache.Key(append([]string{g.Name, string(lock.Format())}, g.inputs...)...)
	folder := dir.Path("guests", g.Name+"-"+key[:16])
	disk := filepath.Join(folder, g.Disk)
	if cache.Exists(disk) {
		return disk, cache.Touch(folder)
	}
	fmt.Fprintf(os.Stderr, "guest %s: building\n", g.Name)
	work, remove, err := dir.TempDir("guest-" + g.Name)
	if err != nil {
		return "", err
	}
	defer remove()
	made := filepath.Join(work, g.Disk)
	if err := g.build(ctx, scratch{dir, lock, work}, made); err != nil {
		return "", fmt.Errorf("building guest %s: %w", g.Name, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("storing guest %s: %w", g.Name, err)
	}
	if err := os.Rename(made, disk); err != nil {
		return "", fmt.Errorf("storing guest %s: %w", g.Name, err)
	}
	return disk, dir.Prune("guests/"+g.Name+"-*", keptGuests)
}

// run runs a program of this machine; times it writes are the lock's.
func (s scratch) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MTOOLS_SKIP_CHECK=1", "TZ=UTC",
		"SOURCE_DATE_EPOCH="+strconv.FormatInt(s.lock.Resolved.Unix(), 10))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out.String())
	}
	return nil
}

// Locks returns the folder of the lock files in the checkout that the working directory is in.
func Locks() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if locks := filepath.Join(dir, "tests", "guest", "locks"); cache.Exists(locks) {
			return locks, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no checkout of the project here: run this inside one")
		}
	}
}
