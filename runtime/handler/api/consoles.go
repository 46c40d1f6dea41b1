package api

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// consoles knows who has the console of each VMI. The zero value is ready.
type consoles struct {
	mu  sync.Mutex
	has map[types.UID]*holder
}

// holder has a console until it is sent away.
type holder struct {
	sendAway context.CancelCauseFunc
	left     chan struct{} // closed when it has let go
}

// enter sends away whoever has the console of vmi and waits until it has let go. The
// context that it returns ends with goodbyeTaken when another comes; leave must be called,
// also after an error.
func (c *consoles) enter(ctx context.Context, vmi types.UID) (held context.Context, leave func(), err error) {
	held, sendAway := context.WithCancelCause(ctx)
	mine := &holder{sendAway: sendAway, left: make(chan struct{})}
	c.mu.Lock()
	before := c.has[vmi]
	if c.has == nil {
		c.has = map[types.UID]*holder{}
	}
	c.has[vmi] = mine
	c.mu.Unlock()
	leave = func() {
		c.mu.Lock()
		if c.has[vmi] == mine {
			delete(c.has, vmi)
		}
		c.mu.Unlock()
		sendAway(nil)
		if before != nil {
			<-before.left // it was sent away, so it is about to go
		}
		close(mine.left)
	}
	if before == nil {
		return held, leave, nil
	}
	before.sendAway(goodbyeTaken)
	select {
	case <-before.left:
		return held, leave, nil
	case <-held.Done():
		return held, leave, fmt.Errorf("waiting for the console: %w", context.Cause(held))
	}
}
