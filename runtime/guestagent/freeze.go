package guestagent

import (
	"context"
	"time"
)

// thawed is the agent's word for file systems that do not stand still.
const thawed = "thawed"

// Freeze makes all of the guest's file systems write out what they hold and stand still.
// A guest whose file systems stand still is left as it is.
func Freeze(ctx context.Context, channel Channel) error {
	status, err := freezeStatus(ctx, channel)
	if err != nil || status != thawed {
		return err
	}
	var count int
	return call(ctx, channel, "guest-fsfreeze-freeze", nil, &count)
}

// Thaw lets the guest's file systems go on.
func Thaw(ctx context.Context, channel Channel) error {
	status, err := freezeStatus(ctx, channel)
	if err != nil || status == thawed {
		return err
	}
	var count int
	return call(ctx, channel, "guest-fsfreeze-thaw", nil, &count)
}

func freezeStatus(ctx context.Context, channel Channel) (string, error) {
	var status string
	err := call(ctx, channel, "guest-fsfreeze-status", nil, &status)
	return status, err
}

// SetTime sets the guest's clock, which stood still while it was paused.
func SetTime(ctx context.Context, channel Channel, now time.Time) error {
	return call(ctx, channel, "guest-set-time", map[string]int64{"time": now.UnixNano()}, &struct{}{})
}
