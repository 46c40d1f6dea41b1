package console

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

const (
	// tailLimit is how much of the end of the output is remembered, in bytes.
	tailLimit = 8 << 10
	// wordsLimit is how long each part of LastWords may be, in characters.
	wordsLimit = 300
)

// tail is the end of a console's output.
type tail struct {
	mu   sync.Mutex
	data []byte
}

func (t *tail) add(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, data...)
	if over := len(t.data) - tailLimit; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}

// ofKernel matches lines of Linux's own log, which begin with a time.
var ofKernel = regexp.MustCompile(`^\[ *[0-9]+\.[0-9]+\] ?(.*)$`)

// panicMark is how Linux begins to say why it panicked.
const panicMark = "Kernel panic - not syncing: "

// LastWords is what a guest that panicked said at last: why, in the words of its kernel, and
// the last line of its programs. Either may be empty. The output is the guest's own, so
// it is cut short and freed of control characters.
func (l *Log) LastWords() (panicked, said string) {
	for line := range strings.SplitSeq(l.tail.text(), "\n") {
		line = plain(line)
		kernel := ofKernel.FindStringSubmatch(line)
		switch {
		case kernel != nil && strings.HasPrefix(kernel[1], panicMark):
			panicked = strings.TrimPrefix(kernel[1], panicMark)
		case kernel == nil && line != "":
			said = line
		}
	}
	return panicked, said
}

// plain is a line without control characters, cut to its limit.
func plain(line string) string {
	line = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, line)
	if runes := []rune(line); len(runes) > wordsLimit {
		line = string(runes[:wordsLimit]) + "…"
	}
	return strings.TrimSpace(line)
}
