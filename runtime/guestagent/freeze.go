package guestagent

import (
	"context"
	"time"
)

// Frozen says whether the guest's file systems stand still.
func Frozen(ctx context.Context, channel Channel) (bool, error) {
	var status string
	err := call(ctx, channel, "guest-fsfreeze-status", nil, &status)
	return status == "frozen", err
}

// Freeze makes all of the guest's file systems write out what they hold and stand still.
func Freeze(ctx context.Context, channel Channel) error {
	var count int
	return call(ctx, channel, "guest-fsfreeze-freeze", nil, &count)
}

// Thaw lets the guest's file systems go on, if they stand still.
func Thaw(ctx context.Context, channel Channel) error {
	if frozen, err := Frozen(ctx, channel); err != nil || !frozen {
		return err
	}
	var count int
	return call(ctx, channel, "guest-fsfreeze-thaw", nil, &count)
}

// SetTime sets the guest's clock, which stood still while it was paused.
func SetTime(ctx context.Context, channel Channel, now time.Time) error {
	return call(ctx, channel, "guest-set-time", map[string]int64{"time": now.UnixNano()}, &struct{}{})
}
