package subresource

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// again is how long to wait before the next try to connect. The right to use a stream comes without
// one to watch the VMI, so trying is the way to learn that it runs.
const again = time.Second

// Steady is how long a stream that was opened again must have lasted to be opened once more. Somebody
// else may have taken it, and it would go to and fro.
const Steady = time.Minute

// Connection is to something of a guest, by a stream that is opened again where it breaks.
type Connection struct {
	// What it is to, in the words of errors: "the console of web".
	What string
	// Wait is how long it may be tried to connect.
	Wait time.Duration
	// Steady is how long a stream must have lasted.
	Steady time.Duration
	// Open opens the stream.
	Open func(context.Context) (*Stream, error)

	reopened time.Time // zero for the first stream
}

// Connect opens the stream, and tries again while the error is one to wait out.
func (c *Connection) Connect(ctx context.Context, wait func(error) bool) (*Stream, error) {
	limit := time.NewTimer(c.Wait)
	defer limit.Stop()
	for {
		stream, err := c.Open(ctx)
		if err == nil || !wait(err) {
			return stream, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connecting to %s: %w", c.What, ctx.Err())
		case <-limit.C:
			return nil, fmt.Errorf("timeout trying to connect to the virtual machine instance: %w", err)
		case <-time.After(again):
		}
	}
}

// Reconnect opens the stream again, which broke with end, and tells so before. It fails when the stream was opened
// again already, and did not last.
func (c *Connection) Reconnect(ctx context.Context, end error, tell func(format string, args ...any)) (*Stream, error) {
	if !c.reopened.IsZero() && time.Since(c.reopened) < c.Steady {
		return nil, fmt.Errorf("disconnected from %s again: %w", c.What, end)
	}
	tell("Connecting again...")
	stream, err := c.Connect(ctx, passing)
	c.reopened = time.Now()
	return stream, err
}

// passing says whether what kept a stream from being opened again may pass: the VMI does not run yet,
// or a part of the way to it is away.
func passing(err error) bool {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled) // no answer
	}
	const serverErrors = 500
	return apierrors.IsBadRequest(err) || status.ErrStatus.Code >= serverErrors
}
