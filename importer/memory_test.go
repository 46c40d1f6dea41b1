package importer

import (
	"os"
	"reflect"
	"testing"
)

func TestOnlyPagesThatTheFileHasAreDropped(t *testing.T) {
	got := programMappings([]byte(`00400000-02514000 r-xp 00000000 fe:00 10797747                           /slipway
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
	want := []mapping{{0x400000, 0x2514000}, {0x6000000, 0x6001000}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestTheProgramRunsOnWithoutItsPages(t *testing.T) {
	if err := limitMemory(); err != nil {
		t.Fatal(err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if len(programMappings(smaps, program)) == 0 {
		t.Error("no mapping of the program was found")
	}
}
