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

// outcome matches a line that ends what a test of Go's has printed, said one in which a test says what is wrong, and plain what
// is no colour of a line.
var (
	outcome = regexp.MustCompile(`^\s*--- |^=== |^(?:ok|FAIL)\s`)
	said    = regexp.MustCompile(`^\s+[\w.-]+\.go:\d+: `)
	colour  = regexp.MustCompile(`\x1b\[[0-9;]*m`)
)

// What of the words of a failure is repeated at the end of the report: lines, and bytes of each.
const (
	mostSaid  = 3
	widthSaid = 1000
)

// failures returns the lines that name failed tests and specs, each once and followed by what was said of it, for the end of the
// report: who sees no more than that is to know what is wrong.
func failures(output string) []string {
	var out []string
	seen := map[string]bool{}
	all := strings.Split(colour.ReplaceAllString(output, ""), "\n")
	for i, line := range all {
		name := strings.TrimSpace(line)
		if !failing.MatchString(line) || strings.HasPrefix(name, "make") || seen[name] {
			continue
		}
		seen[name] = true
		out = append(out, cut(name))
		for _, word := range append(before(all, i), after(all, i)...) {
			out = append(out, "  "+cut(strings.TrimSpace(word)))
		}
	}
	return out
}

// before returns what the test of Go's has said whose outcome is line at of all: the last of it.
func before(all []string, at int) []string {
	var out []string
	for j := at - 1; j >= 0 && !outcome.MatchString(all[j]) && len(out) < mostSaid; j-- {
		if said.MatchString(all[j]) {
			out = append([]string{all[j]}, out...)
		}
	}
	return out
}

// after returns what follows line at of all, where a spec has failed.
func after(all []string, at int) []string {
	var out []string
	if !strings.HasPrefix(strings.TrimSpace(all[at]), "[") {
		return nil
	}
	for _, line := range all[at+1 : min(len(all), at+1+mostSaid)] {
		if strings.TrimSpace(line) == "" {
			break
		}
		out = append(out, line)
	}
	return out
}

func cut(line string) string {
	if len(line) <= widthSaid {
		return line
	}
	return line[:widthSaid] + "..."
}
