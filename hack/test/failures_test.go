package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A failure in the middle of a long log is shown with what the test printed, and named at the end.
func TestAFailureIsShownWhereverItIs(t *testing.T) {
	var log strings.Builder
	for i := range 500 {
		fmt.Fprintf(&log, "--- PASS: TestBefore%d (0.00s)\n", i)
	}
	log.WriteString("    x_test.go:7: got 1, want 2\n--- FAIL: TestX (0.10s)\n")
	for i := range 500 {
		fmt.Fprintf(&log, "--- PASS: TestAfter%d (0.00s)\n", i)
	}
	log.WriteString("FAIL\n")
	got := excerpt(log.String())
	for _, want := range []string{"x_test.go:7: got 1, want 2", "--- FAIL: TestX", "TestBefore499 ", "TestAfter0 "} {
		if !strings.Contains(got, want) {
			t.Errorf("the excerpt lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "TestBefore1 ") || strings.Contains(got, "TestAfter499 ") {
		t.Errorf("the excerpt is no excerpt:\n%s", got)
	}
	if want := []string{"--- FAIL: TestX (0.10s)", "  x_test.go:7: got 1, want 2"}; !slices.Equal(failures(log.String()), want) {
		t.Errorf("got names %q, want %q", failures(log.String()), want)
	}
}

// Where nothing says what failed, the end is shown.
func TestTheEndIsShownWhereNothingIsNamed(t *testing.T) {
	log := strings.Repeat("a line\n", 300) + "exit status 1\n"
	if got := excerpt(log); !strings.HasSuffix(got, "exit status 1") || strings.Count(got, "a line") != tail-1 {
		t.Errorf("got\n%s", got)
	}
}

// Specs are coloured.
func TestSpecsAreNamed(t *testing.T) {
	log := "  \x1b[38;5;9m[FAILED] Timed out.\x1b[0m\n  it waited for a VM\n\n  more\n\x1b[38;5;9m[FAIL]\x1b[0m \x1b[0mA VM \x1b[38;5;9m[It] starts\x1b[0m\n"
	if got, want := failures(log), []string{"[FAILED] Timed out.", "  it waited for a VM", "[FAIL] A VM [It] starts"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
