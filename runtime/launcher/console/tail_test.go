package console

import (
	"strings"
	"testing"
)

func TestLastWords(t *testing.T) {
	for name, c := range map[string]struct{ output, wantPanic, wantSaid string }{
		"nothing": {"", "", ""},
		"a program and the kernel": {
			"booting\r\nsetup: failed: no answer\r\n[   12.345] sysrq: Trigger a crash\r\n[   12.4] Kernel panic - not syncing: sysrq triggered crash\r\n[   12.4] CPU: 0 PID: 1\r\n",
			"sysrq triggered crash", "setup: failed: no answer",
		},
		"a program alone":    {"COM1: failed: no disk\r\n", "", "COM1: failed: no disk"},
		"a line without end": {"first\nsecond", "", "second"},
		"control characters": {"\x1b[2J\x00failed\a\xff\n", "", "[2Jfailed"},
		"a very long line":   {strings.Repeat("x", 20000), "", strings.Repeat("x", wordsLimit) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &Log{}
			for chunk := range strings.SplitAfterSeq(c.output, "e") { // in pieces, as they come
				log.tail.add([]byte(chunk))
			}
			panicked, said := log.LastWords()
			if panicked != c.wantPanic || said != c.wantSaid {
				t.Errorf("panicked %q, said %q", panicked, said)
			}
			if len(log.tail.data) > tailLimit {
				t.Errorf("%d bytes are remembered", len(log.tail.data))
			}
		})
	}
}
