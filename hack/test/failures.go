package main

import (
	"regexp"
	"strings"
)

// failing matches a line that says what failed: a test of Go's, a spec, a package, a program's end.
var failing = regexp.MustCompile(`^\s*--- FAIL: |^\s*(?:\x1b\[[0-9;]*m)*\[(?:FAIL|FAILED|PANICKED|TIMEDOUT)\]|^FAIL\s+\S+|^panic: |^fatal error: |^make(?:\[\d+\])?: \*\*\* `)

// What is shown of a failed stage's output: the lines before and after each that says what failed,
// and of all that no more than most. What a test prints comes before the line with its outcome.
const (
	linesBefore = 40
	linesAfter  = 10
	most        = 400
)

// excerpt returns what a reader needs of a failed stage's output: the lines around each failure,
// with "..." where some are left out, and its end where nothing says what failed.
func excerpt(output string) string {
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	shown := make([]bool, len(lines))
	any := false
	for i, line := range lines {
		if !failing.MatchString(line) {
			continue
		}
		any = true
		for j := max(0, i-linesBefore); j <= min(len(lines)-1, i+linesAfter); j++ {
			shown[j] = true
		}
	}
	if !any {
		for i := max(0, len(lines)-tail); i < len(lines); i++ {
			shown[i] = true
		}
	}
	var out []string
	for i, line := range lines {
		switch {
		case len(out) >= most:
			return strings.Join(append(out, "    ... and more in the log"), "\n")
		case shown[i]:
			out = append(out, "    "+line)
		case len(out) > 0 && out[len(out)-1] != "    ...":
			out = append(out, "    ...")
		}
	}
	return strings.Join(out, "\n")
}

// names returns the lines that name failed tests and specs, each once, for the end of the report.
func names(output string) []string {
	var out []string
	seen := map[string]bool{}
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if failing.MatchString(line) && !strings.HasPrefix(line, "make") && !seen[line] {
			seen[line] = true
			out = append(out, line)
		}
	}
	return out
}
