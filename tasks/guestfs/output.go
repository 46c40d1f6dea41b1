package guestfs

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxOutput is how much of the end of the tool's output becomes a result, in bytes: all
// results of a TaskRun share 4096 with Tekton's own.
const maxOutput = 1024

// maxLine is how much of a line without an end is held back, in bytes.
const maxLine = 64 << 10

// redactor passes on whole lines, with *** in the place of secrets.
type redactor struct {
	out     io.Writer
	replace *strings.Replacer
	line    bytes.Buffer
}

func newRedactor(out io.Writer, secrets []string) *redactor {
	return &redactor{out: out, replace: replacer(secrets)}
}

// replacer puts *** in the place of secrets.
func replacer(secrets []string) *strings.Replacer {
	pairs := make([]string, 0, 2*len(secrets))
	for _, secret := range secrets {
		pairs = append(pairs, secret, "***")
	}
	return strings.NewReplacer(pairs...)
}

// redact returns text without secrets.
func redact(text string, secrets []string) string { return replacer(secrets).Replace(text) }

// Write takes part of the output; what follows its last line end is held back, since a
// secret may go on in the next part.
func (r *redactor) Write(p []byte) (int, error) {
	r.line.Write(p)
	end := bytes.LastIndexByte(r.line.Bytes(), '\n') + 1
	if end == 0 && r.line.Len() < maxLine {
		return len(p), nil
	}
	if end == 0 {
		end = r.line.Len()
	}
	if _, err := r.replace.WriteString(r.out, string(r.line.Next(end))); err != nil {
		return 0, fmt.Errorf("passing on the output: %w", err)
	}
	return len(p), nil
}

// Flush passes on what was held back.
func (r *redactor) Flush() error {
	if _, err := r.replace.WriteString(r.out, string(r.line.Next(r.line.Len()))); err != nil {
		return fmt.Errorf("passing on the output: %w", err)
	}
	return nil
}

// tail keeps the last limit bytes written to it.
type tail struct {
	kept  []byte
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// text is what was kept, from its first whole character on.
func (t *tail) text() string {
	kept := t.kept
	for len(kept) > 0 && !utf8.RuneStart(kept[0]) {
		kept = kept[1:]
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(kept), "?"))
}
