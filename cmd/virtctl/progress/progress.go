// Package progress shows how far a disk is that virtctl sends or fetches.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// How often the progress is shown: on a terminal by a line that is written anew, elsewhere by one more line.
const (
	everyOnTerminal = 500 * time.Millisecond
	everyElsewhere  = 10 * time.Second
)

// Progress counts bytes, and shows how many there were. It may be told of them elsewhere than where it is ended.
type Progress struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	total    int64
	done     int64
	earlier  int64 // of done, what was there when it began
	began    time.Time
	shown    time.Time
}

// New returns the progress of total bytes, 0 for nobody knows how many, shown on out.
func New(out io.Writer, total int64) *Progress {
	p := &Progress{out: out, total: total, began: time.Now()}
	if file, ok := out.(*os.File); ok {
		p.terminal = term.IsTerminal(int(file.Fd())) //nolint:gosec // a descriptor is small
	}
	p.shown = p.began
	return p
}

// From is New for what goes on after done bytes.
func From(out io.Writer, done, total int64) *Progress {
	p := New(out, total)
	p.done, p.earlier = done, done
	return p
}

// Write counts. It never errs.
func (p *Progress) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(len(data))
	every := everyElsewhere
	if p.terminal {
		every = everyOnTerminal
	}
	if now := time.Now(); now.Sub(p.shown) >= every {
		p.shown = now
		p.show(now)
	}
	return len(data), nil
}

func (p *Progress) show(now time.Time) {
	begin, end := "", "\n"
	if p.terminal {
		begin, end = "\r\x1b[K", ""
	}
	fmt.Fprint(p.out, begin+p.line(now.Sub(p.began))+end)
}

// line is such as " 512.0 MiB of 1.5 GiB, 33 %, 102.4 MiB/s, 10s left".
func (p *Progress) line(took time.Duration) string {
	text := " " + amount(float64(p.done))
	if p.total > 0 {
		text += fmt.Sprintf(" of %s, %d %%", amount(float64(p.total)), p.done*100/p.total)
	}
	if seconds := took.Seconds(); seconds > 0 && p.done > p.earlier {
		speed := float64(p.done-p.earlier) / seconds
		text += fmt.Sprintf(", %s/s", amount(speed))
		if p.total > 0 {
			left := time.Duration(float64(p.total-p.done) / speed * float64(time.Second)).Round(time.Second)
			text += fmt.Sprintf(", %s left", left)
		}
	}
	return text
}

// End shows how far it came.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == p.earlier {
		return
	}
	p.show(time.Now())
	if p.terminal {
		fmt.Fprintln(p.out)
	}
}

func amount(bytes float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	n := 0
	for ; bytes >= 1024 && n < len(units)-1; n++ {
		bytes /= 1024
	}
	if n == 0 {
		return fmt.Sprintf("%.0f %s", bytes, units[n])
	}
	return fmt.Sprintf("%.1f %s", bytes, units[n])
}
