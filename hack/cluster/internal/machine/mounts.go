package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

// poolSize is the length in bytes of the pool's file, which is sparse.
const poolSize = 40 << 30

// mountPoint is one line of mountinfo.
type mountPoint struct {
	path   string
	fstype string
	shared bool
}

// parseMounts reads a mountinfo.
func parseMounts(text string) []mountPoint {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var found []mountPoint
	for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
		before, after, ok := strings.Cut(scanner.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 6 {
			continue
		}
		m := mountPoint{path: unescape.Replace(fields[4]), fstype: strings.Fields(after)[0]}
		for _, option := range fields[6:] {
			m.shared = m.shared || strings.HasPrefix(option, "shared:")
		}
		found = append(found, m)
	}
	return found
}

func mounts() ([]mountPoint, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	return parseMounts(string(b)), nil
}

// share makes mounts propagate into pods and out of them.
func (r *Record) share() error {
	all, err := mounts()
	if err != nil {
		return err
	}
	before := len(r.Private) == 0
	private := false
	for _, m := range all {
		if m.shared {
			continue
		}
		private = true
		if before {
			r.Private = appendNew(r.Private, m.path)
		}
	}
	if !private {
		return nil
	}
	if err := r.Save(); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("making mounts shared: %w", err)
	}
	return nil
}

// shareDir makes a folder a shared mount of its own, unless something is mounted
// below it already.
func shareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	all, err := mounts()
	if err != nil {
		return err
	}
	if len(pathsBelow(all, dir)) > 0 {
		return nil
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s on itself: %w", dir, err)
	}
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} { // leaves the root's group, begins its own
		if err := unix.Mount("", dir, "", propagation, ""); err != nil {
			return fmt.Errorf("making mounts below %s shared: %w", dir, err)
		}
	}
	return nil
}

// unshare makes those mounts private again that were.
func (r *Record) unshare() error {
	all, err := mounts()
	if err != nil {
		return err
	}
	private := map[string]bool{}
	for _, path := range r.Private {
		private[path] = true
	}
	var failed *multierror.Error
	for _, m := range all {
		if !m.shared || !private[m.path] {
			continue
		}
		if err := unix.Mount("", m.path, "", unix.MS_PRIVATE, ""); err != nil && !errors.Is(err, unix.EINVAL) {
			failed = multierror.Append(failed, fmt.Errorf("making %s private again: %w", m.path, err))
		}
	}
	return failed.ErrorOrNil()
}

// UnmountBelow unmounts everything at and below a folder, the newest first.
func UnmountBelow(dir string) error {
	var failed *multierror.Error
	for range 3 {
		all, err := mounts()
		if err != nil {
			return err
		}
		below := pathsBelow(all, dir)
		if len(below) == 0 {
			return nil
		}
		failed = nil
		for _, path := range below {
			err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
			if errors.Is(err, unix.EBUSY) {
				err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			}
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				failed = multierror.Append(failed, fmt.Errorf("unmounting %s: %w", path, err))
			}
		}
	}
	return failed.ErrorOrNil()
}

// pathsBelow returns the mount points at and below dir, in the reverse order of mounting.
func pathsBelow(all []mountPoint, dir string) []string {
	var below []string
	for _, m := range slices.Backward(all) {
		if p := m.path; p == dir || strings.HasPrefix(p, dir+"/") {
			below = append(below, p)
		}
	}
	sort.SliceStable(below, func(i, j int) bool { return strings.Count(below[i], "/") > strings.Count(below[j], "/") })
	return below
}

// MountPool mounts the node's disk pool: XFS with reflinks on a sparse file, or
// btrfs, or a plain folder where a file cannot be mounted.
func MountPool(ctx context.Context, n layout.Node, say func(string, ...any)) error {
	if err := os.MkdirAll(n.Pool(), 0o755); err != nil {
		return fmt.Errorf("making the pool: %w", err)
	}
	all, err := mounts()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.path == n.Pool() {
			return nil
		}
	}
	if _, err := os.Stat(filepath.Join(n.Pool(), ".plain")); err == nil {
		return nil
	}
	if err := makePool(ctx, n.PoolImage()); err != nil {
		return err
	}
	// With quotas, which a kernel may lack and btrfs does not know by this name, volumes are held to their sizes.
	_, err = run(ctx, "mount", "-o", "loop,discard,prjquota", n.PoolImage(), n.Pool())
	if err != nil {
		_, err = run(ctx, "mount", "-o", "loop,discard", n.PoolImage(), n.Pool())
	}
	if err != nil {
		say("the pool is a plain folder, so clones are copies: %v", err)
		return os.WriteFile(filepath.Join(n.Pool(), ".plain"), nil, 0o644)
	}
	return os.Chmod(n.Pool(), 0o755)
}

// makePool makes the pool's file with a file system in it unless it is there.
func makePool(ctx context.Context, file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	tmp := file + ".new"
	f, err := os.Create(tmp)
	if err != nil {
		return fmt.Errorf("making the pool's file: %w", err)
	}
	if err := errors.Join(f.Truncate(poolSize), f.Close()); err != nil {
		return fmt.Errorf("making the pool's file: %w", err)
	}
	_, err = run(ctx, "mkfs.xfs", "-q", "-f", "-m", "reflink=1", tmp)
	if err != nil {
		if _, lookErr := exec.LookPath("mkfs.btrfs"); lookErr != nil {
			return err
		}
		if _, err := run(ctx, "mkfs.btrfs", "-q", "-f", tmp); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, file); err != nil {
		return fmt.Errorf("keeping the pool's file: %w", err)
	}
	return nil
}

// PoolType names the pool's file system; "folder" when it is none of its own.
func PoolType(n layout.Node) string {
	all, err := mounts()
	if err != nil {
		return "folder"
	}
	for _, m := range all {
		if m.path == n.Pool() {
			return m.fstype
		}
	}
	return "folder"
}

func appendNew(list []string, item string) []string {
	if slices.Contains(list, item) {
		return list
	}
	return append(list, item)
}
