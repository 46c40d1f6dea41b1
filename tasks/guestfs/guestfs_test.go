package guestfs

import (
	"slices"
	"testing"
)

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"":                           nil,
		"  --smp 2\t--memsize 2048":  {"--smp", "2", "--memsize", "2048"},
		`--run-command 'echo "a b"'`: {"--run-command", `echo "a b"`},
		`a\ b "c \" d" '' e`:         {"a b", `c " d`, "", "e"},
	} {
		if got, err := split(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, bad := range []string{`'open`, `"open`, `end\`} {
		if _, err := split(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
