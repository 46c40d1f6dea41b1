package once

import (
	"regexp"
	"strings"
	"testing"
)

func TestGeneratedNamesAreTheSameInEveryTry(t *testing.T) {
	first, again, second, other := generated("vm-", "u1", 0), generated("vm-", "u1", 0), generated("vm-", "u1", 1), generated("vm-", "u2", 0)
	if first != again || first == second || first == other || second == other {
		t.Errorf("got %s, %s, %s, %s", first, again, second, other)
	}
	if !regexp.MustCompile(`^vm-[` + alphabet + `]{5}$`).MatchString(first) {
		t.Errorf("%s is no name that Kubernetes would generate", first)
	}
	if long := generated(strings.Repeat("a", 80), "u1", 0); len(long) != 63 {
		t.Errorf("%s has %d characters", long, len(long))
	}
}
