package processors

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Confine keeps all processes that are in proc, and what they start later, on the processor with
// this number: those of the launcher's pod. Who is given another processor after that keeps it.
func Confine(proc string, cpu int) error {
	// A thread that was started during one pass, by another that was not confined yet, is met in
	// the next.
	for {
		changed, err := confine(proc, cpu)
		if changed == 0 || err != nil {
			return err
		}
	}
}

// confine does that for the threads that there are now, and returns how many were not.
func confine(proc string, cpu int) (changed int, err error) {
	threads, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "task", "[0-9]*"))
	if err != nil {
		return 0, fmt.Errorf("listing threads: %w", err)
	}
	var only, now unix.CPUSet
	only.Set(cpu)
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		if err != nil {
			continue
		}
		if err := unix.SchedGetaffinity(id, &now); err != nil || now == only {
			continue // it has ended, or is there
		}
		if err := unix.SchedSetaffinity(id, &only); errors.Is(err, unix.ESRCH) {
			continue
		} else if err != nil {
			return changed, fmt.Errorf("keeping thread %d on processor %d: %w", id, cpu, err)
		}
		changed++
	}
	return changed, nil
}
