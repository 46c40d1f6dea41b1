package importer

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryLimit is what the garbage collector keeps the importer under: a decoder's largest
// window and the buffers around it, with room to collect. The pod's limit is 128 MiB, of
// which the program's own pages take what is left.
const memoryLimit = 96 << 20

// limitMemory keeps the import within its pod. The one program of all components touches
// tens of MiB of its own file when it starts; an import needs few of those pages again.
func limitMemory() error {
	debug.SetMemoryLimit(memoryLimit)
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading the program's memory map: %w", err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("finding the program's file: %w", err)
	}
	for _, m := range programMappings(maps, program) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("dropping pages of the program: %w", errno)
		}
	}
	return nil
}

// mapping is a stretch of the address space.
type mapping struct{ begin, end uintptr }

// programMappings returns the mappings of the program's file that can be dropped without a
// loss, as /proc/self/smaps lists them: they are read-only and have no page of their own,
// so that the kernel reads them from the file again.
func programMappings(smaps []byte, program string) []mapping {
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
