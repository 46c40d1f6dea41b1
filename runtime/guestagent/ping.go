package guestagent

import "context"

// Ping fails when no agent answers.
func Ping(ctx context.Context, channel Channel) error {
	var nothing struct{}
	return call(ctx, channel, "guest-ping", nil, &nothing)
}
