// Package processors finds the processors of the node that the launcher's container may run on,
// and keeps the launcher's own processes off those of the guest.
package processors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/domain"
)

// maxCPUs bounds the numbers of processors that are looked at; it is what unix.CPUSet holds.
const maxCPUs = 1024

// Own returns the processors that this process may run on, which are those of its cgroup (of
// either version) unless somebody narrowed them: the kernel is asked, not the cgroup's files. sys
// is where sysfs is mounted.
func Own(sys string) ([]domain.HostCPU, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("asking the kernel for the container's processors: %w", err)
	}
	var cpus []domain.HostCPU
	for id := range maxCPUs {
		if !set.IsSet(id) {
			continue
		}
		cpu, err := describe(sys, id)
		if err != nil {
			return nil, fmt.Errorf("looking at processor %d: %w", id, err)
		}
		cpus = append(cpus, cpu)
	}
	return cpus, nil
}

// describe reads in sysfs where a processor is. What a kernel does not tell is taken to be plain:
// a core of one thread, on the one NUMA node.
func describe(sys string, id int) (domain.HostCPU, error) {
	folder := filepath.Join(sys, "devices", "system", "cpu", "cpu"+strconv.Itoa(id))
	cpu := domain.HostCPU{ID: uint(id), Core: uint(id)} //nolint:gosec // below maxCPUs
	siblings, err := os.ReadFile(filepath.Join(folder, "topology", "thread_siblings_list"))
	switch {
	case err == nil:
		if cpu.Core, err = first(strings.TrimSpace(string(siblings))); err != nil {
			return cpu, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return cpu, fmt.Errorf("reading its siblings: %w", err)
	}
	nodes, err := filepath.Glob(filepath.Join(folder, "node[0-9]*"))
	if err != nil {
		return cpu, fmt.Errorf("looking for its NUMA node: %w", err)
	}
	for _, node := range nodes {
		if cpu.Node, err = first(strings.TrimPrefix(filepath.Base(node), "node")); err != nil {
			return cpu, err
		}
	}
	return cpu, nil
}

// first is the lowest number of a list such as 0,4 or 0-1.
func first(list string) (uint, error) {
	end := strings.IndexAny(list, ",-")
	if end < 0 {
		end = len(list)
	}
	number, err := strconv.ParseUint(list[:end], 10, 16)
	if err != nil {
		return 0, fmt.Errorf("reading the processors %q: %w", list, err)
	}
	return uint(number), nil
}
