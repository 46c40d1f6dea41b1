package served

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRetry lets runs fail: the first is tried again soon, for an API server serves a kind
// a moment after it says so, and one that goes on failing is not tried all the time.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		seconds := []int{0, 1, 3, 7, 15, 31, 63, 123, 183, 183 + 3600 + 1, 183 + 3600 + 1 + 2}
		began, runs := time.Now(), 0
		Kind{Definition: "things.example.com"}.retry(ctx, func() error {
			if at, want := time.Since(began), time.Duration(seconds[runs])*time.Second; at != want {
				t.Errorf("run %d began after %v, want %v", runs, at, want)
			}
			switch runs++; runs {
			case 9: // one that went well for long, until it failed
				time.Sleep(time.Hour)
			case len(seconds):
				stop()
			}
			return errors.New("no matches for kind")
		})
		if runs != len(seconds) {
			t.Errorf("%d runs, want %d", runs, len(seconds))
		}
	})
}

// TestRetryEnds lets a run end without an error: what it served is gone.
func TestRetryEnds(t *testing.T) {
	runs := 0
	Kind{}.retry(t.Context(), func() error { runs++; return nil })
	if runs != 1 {
		t.Errorf("%d runs, want one", runs)
	}
}
