package source

import (
	"context"

	"golang.org/x/time/rate"
)

// burst is how many bytes come at most before the limit of a source is asked.
const burst = 64 << 10

// limit is how many bytes come from a source in a second, by all its connections; nil is no limit.
type limit struct{ rate *rate.Limiter }

func newLimit(bytesPerSecond int64) *limit {
	if bytesPerSecond <= 0 {
		return nil
	}
	return &limit{rate.NewLimiter(rate.Limit(bytesPerSecond), burst)}
}

// cut is the part of p that may be read at once.
func (l *limit) cut(p []byte) []byte {
	if l == nil {
		return p
	}
	return p[:min(len(p), burst)]
}

// wait returns once the next bytes may come after n did, or when ctx ends.
func (l *limit) wait(ctx context.Context, n int) {
	if l != nil && n > 0 {
		_ = l.rate.WaitN(ctx, n) // the next read of a request that has ended fails
	}
}
