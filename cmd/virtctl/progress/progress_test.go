package progress

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestALineSaysWhatIsKnown(t *testing.T) {
	for want, p := range map[string]*Progress{
		" 512.0 MiB of 1.5 GiB, 33 %, 51.2 MiB/s, 20s left": {done: 512 << 20, total: 3 << 29},
		" 512.0 MiB, 51.2 MiB/s":                            {done: 512 << 20},
		" 0 B of 10 B, 0 %":                                 {total: 10},
	} {
		if got := p.line(10 * time.Second); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTheEndIsShown(t *testing.T) {
	var out bytes.Buffer
	p := New(&out, 4)
	p.End()
	if out.Len() > 0 {
		t.Errorf("showed %q of nothing", out.String())
	}
	_, _ = p.Write([]byte("four"))
	p.End()
	if !strings.Contains(out.String(), "4 B of 4 B, 100 %") {
		t.Errorf("showed %q", out.String())
	}
}

func TestProgressIsOneLine(t *testing.T) {
	var out bytes.Buffer
	p := New(&out, 3<<30)
	p.done = 1 << 30
	if got, want := p.line(10*time.Second), " 1.0 GiB of 3.0 GiB, 33 %, 102.4 MiB/s, 20s left"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := p.Write(make([]byte, 100)); err != nil || out.Len() > 0 {
		t.Errorf("it writes at once: %q, %v", &out, err)
	}
	p.End()
	if strings.Count(out.String(), "\n") != 1 || strings.Contains(out.String(), "\r") {
		t.Errorf("%q", &out)
	}
}
