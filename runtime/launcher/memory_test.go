package launcher

import (
	"reflect"
	"strings"
	"testing"
)

func TestOnlyCleanMappingsOfFilesAreGivenBack(t *testing.T) {
	smaps := `00400000-00500000 r-xp 00000000 fe:00 77 /usr/bin/virt-launcher
Rss:                 100 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00500000-00600000 rw-p 00100000 fe:00 77 /usr/bin/virt-launcher
Private_Dirty:         0 kB
Anonymous:             0 kB
00600000-00700000 r--p 00200000 fe:00 78 /lib/libc.so
Private_Dirty:         8 kB
Anonymous:             8 kB
00700000-00800000 r-xp 00000000 00:00 0 [vdso]
Private_Dirty:         0 kB
00800000-00900000 r--s 00000000 fe:00 79 /shared
Private_Dirty:         0 kB
00900000-00a00000 r--p 00000000 fe:00 80 /lib/libm.so
Private_Dirty:         0 kB
Anonymous:             0 kB
`
	got, err := cleanMappings(strings.NewReader(smaps))
	want := []mapping{{0x400000, 0x500000}, {0x900000, 0xa00000}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %x, %v; want %x", got, err, want)
	}
}

func TestTheProgramGoesOnAfterATrim(t *testing.T) {
	for range 3 {
		if err := trimMemory(); err != nil {
			t.Fatal(err)
		}
	}
}
