// Package resident keeps small what a process holds of its own program in memory.
//
// One program is every part of Slipway, so its start touches much of its file: each package that
// is linked in prepares itself, and the kernel maps the pages around each that is touched. These
// pages are shared by all processes of the program and can be read from the file again, but they
// count as the memory of each.
package resident

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Drop gives back all pages of the program's file that the process has mapped and not changed.
// Those that are needed again come back few at a time.
func Drop() error {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading the program's memory map: %w", err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("finding the program's file: %w", err)
	}
	for _, m := range mappings(maps, program) {
		// Else the kernel may map 2 MiB around each page that is needed again. One without huge pages refuses.
		if err := m.advise(unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("asking for small pages of the program: %w", err)
		}
		if err := m.advise(unix.MADV_DONTNEED); err != nil {
			return fmt.Errorf("dropping pages of the program: %w", err)
		}
	}
	return nil
}

// mapping is a stretch of the address space.
type mapping struct{ begin, end uintptr }

// advise tells the kernel what to do with the mapping's pages.
func (m mapping) advise(advice uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, advice); errno != 0 {
		return fmt.Errorf("advising the kernel of its memory: %w", errno)
	}
	return nil
}

// mappings returns the mappings of the program's file that can be dropped without a loss, as
// /proc/self/smaps lists them: they are read-only and have no page of their own.
func mappings(smaps []byte, program string) []mapping {
	var found []mapping
	var last mapping
	ours := false
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 1 && !strings.HasSuffix(fields[0], ":"):
			begin, end, _ := strings.Cut(fields[0], "-")
			from, err := strconv.ParseUint(begin, 16, 64)
			to, err2 := strconv.ParseUint(end, 16, 64)
			last = mapping{uintptr(from), uintptr(to)}
			ours = err == nil && err2 == nil && (fields[1] == "r-xp" || fields[1] == "r--p") && strings.HasSuffix(strings.TrimSpace(line), " "+program)
		case ours && len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0":
			found = append(found, last)
		}
	}
	return found
}
