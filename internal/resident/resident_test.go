package resident

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestOnlyPagesThatTheFileHasAreDropped(t *testing.T) {
	got := mappings([]byte(`00400000-02514000 r-xp 00000000 fe:00 10797747                           /slipway
Rss:               19088 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
02514000-04fa4000 r--p 02114000 fe:00 10797747                           /slipway
Anonymous:             4 kB
04fa4000-05060000 rw-p 04ba4000 fe:00 10797747                           /slipway
Anonymous:             0 kB
06000000-06001000 r--p 05ba4000 fe:00 10797747                           /slipway
Anonymous:             0 kB
07000000-07001000 r--p 00000000 fe:00 10797750                           /usr/lib/other
Anonymous:             0 kB
7ffc0000-7ffe0000 r-xp 00000000 00:00 0                                  [vdso]
Anonymous:             0 kB
`), "/slipway")
	if want := []mapping{{0x400000, 0x2514000}, {0x6000000, 0x6001000}}; !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestDropLeavesLessOfTheFileAndARunningProgram(t *testing.T) {
	before := residentFile(t)
	if err := Drop(); err != nil {
		t.Fatal(err)
	}
	if after := residentFile(t); after >= before {
		t.Errorf("%d KiB of files before, %d KiB after", before, after)
	}
}

// residentFile returns how much of files this process holds, in KiB.
func residentFile(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "RssFile:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatal("the kernel does not tell RssFile")
	return 0
}
