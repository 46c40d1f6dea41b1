package crd

import (
	"regexp"
	"testing"
	"time"
)

// What is let in can be read.
func TestDurationsThatAreLetInAreRead(t *testing.T) {
	pattern := regexp.MustCompile(durations)
	for _, text := range []string{
		"0", "1m", "1m0s", "720h", "1.5h", "-1s", "100ms", "1.5µs", "3ns", (36 * time.Hour).String(), time.Nanosecond.String(),
		"999999h9999999m999999999s999999999999ms999999999999999us999999999999999999ns",
	} {
		if !pattern.MatchString(text) {
			t.Errorf("%s is refused", text)
		}
		if _, err := time.ParseDuration(text); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{"other", "1", "1d", "1 m", "1m ", "9999999h", "s"} {
		if pattern.MatchString(text) {
			t.Errorf("%s is let in", text)
		}
	}
}
