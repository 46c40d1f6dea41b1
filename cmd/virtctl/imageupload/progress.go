package imageupload

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// How often the progress is shown: on a terminal by a line that is written anew, elsewhere by one more line.
const (
	everyOnTerminal = 500 * time.Millisecond
	everyElsewhere  = 10 * time.Second
)

// progress counts what was sent, and shows it.
type progress struct {
	out      io.Writer
	terminal bool
	total    int64
	sent     int64
	began    time.Time
	shown    time.Time
}

func newProgress(out io.Writer, total int64) *progress {
	p := &progress{out: out, total: total, began: time.Now()}
	if file, ok := out.(*os.File); ok {
		p.terminal = term.IsTerminal(int(file.Fd())) //nolint:gosec // a descriptor is small
	}
	p.shown = p.began
	return p
}

// Write counts. It never errs.
func (p *progress) Write(data []byte) (int, error) {
	p.sent += int64(len(data))
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

func (p *progress) show(now time.Time) {
	begin, end := "", "\n"
	if p.terminal {
		begin, end = "\r\x1b[K", ""
	}
	fmt.Fprint(p.out, begin+p.line(now.Sub(p.began))+end)
}

// line is such as " 512.0 MiB of 1.5 GiB, 33 %, 102.4 MiB/s, 10s left".
func (p *progress) line(took time.Duration) string {
	text := fmt.Sprintf(" %s of %s, %d %%", amount(float64(p.sent)), amount(float64(p.total)), p.sent*100/max(p.total, 1))
	if seconds := took.Seconds(); seconds > 0 && p.sent > 0 {
		speed := float64(p.sent) / seconds
		left := time.Duration(float64(p.total-p.sent) / speed * float64(time.Second)).Round(time.Second)
		text += fmt.Sprintf(", %s/s, %s left", amount(speed), left)
	}
	return text
}

// end shows how far it came.
func (p *progress) end() {
	if p.sent == 0 {
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
