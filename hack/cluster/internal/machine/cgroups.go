package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
	"github.com/slipway-vm/slipway/hack/cluster/internal/process"
)

const cgroupTop = "/sys/fs/cgroup"

// cgroupDirs returns the folders of the pods' parent cgroup, one per hierarchy.
func cgroupDirs() []string {
	if CgroupV2() {
		return []string{filepath.Join(cgroupTop, layout.Cgroup), filepath.Join(cgroupTop, layout.Cgroup+".slice")}
	}
	entries, err := os.ReadDir(cgroupTop)
	if err != nil {
		return nil
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(cgroupTop, e.Name(), layout.Cgroup), filepath.Join(cgroupTop, e.Name(), layout.Cgroup+".slice"))
		}
	}
	return dirs
}

// Cgroups makes the parent cgroup of the pods, which the kubelet wants to find.
func Cgroups(systemd bool) error {
	if CgroupV2() {
		return cgroupV2(systemd)
	}
	for _, dir := range cgroupDirs() {
		if strings.HasSuffix(dir, ".slice") != systemd {
			continue
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("making the cgroup of the pods: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
				return fmt.Errorf("giving the pods' cgroup its processors: %w", err)
			}
		}
	}
	return nil
}

// required are the cgroup controllers that the kubelet does not start without.
var required = []string{"cpu", "cpuset", "memory", "pids"}

// cgroupV2 makes the parent cgroup in the unified hierarchy with every controller
// that can be had.
func cgroupV2(systemd bool) error {
	b, err := os.ReadFile(filepath.Join(cgroupTop, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("listing cgroup controllers: %w", err)
	}
	name := layout.Cgroup
	if systemd {
		name += ".slice"
	}
	dir := filepath.Join(cgroupTop, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making the cgroup of the pods: %w", err)
	}
	for _, at := range []string{cgroupTop, dir} {
		for c := range strings.FieldsSeq(string(b)) {
			err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+"+c), 0o644)
			if err != nil && slices.Contains(required, c) {
				return fmt.Errorf("giving the cgroup controller %s to what is below %s: %w; processes directly in it must move to a cgroup of their own", c, at, err)
			}
		}
	}
	return nil
}

// walkCgroups calls visit for every pod cgroup, children before parents.
func walkCgroups(visit func(dir string)) {
	for _, top := range cgroupDirs() {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			visit(dir)
		}
	}
}

// PodProcesses returns every process in the pods' cgroups.
func PodProcesses() []process.Identity {
	seen := map[int]bool{}
	var found []process.Identity
	walkCgroups(func(dir string) {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return
		}
		for field := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(field)
			if err != nil || seen[pid] {
				continue
			}
			seen[pid] = true
			if id, err := process.Identify(pid); err == nil {
				found = append(found, id)
			}
		}
	})
	return found
}

// removeCgroups removes the pods' cgroups; systemd lets go of its own first.
func removeCgroups(ctx context.Context) error {
	if isDir("/run/systemd/system") {
		_, _ = run(ctx, "systemctl", "stop", layout.Cgroup+".slice") // not loaded: nothing to stop
	}
	var all *multierror.Error
	walkCgroups(func(dir string) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			all = multierror.Append(all, fmt.Errorf("removing the cgroup %s: %w", dir, err))
		}
	})
	return all.ErrorOrNil()
}
