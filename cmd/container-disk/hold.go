package main

import (
	"context"
	"errors"

	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// hold tells the handler whose socket is in dir that the volume is mounted in this pod, as
// often as the handler begins anew, until ctx is done. The handler reaches the volume
// through this process.
func hold(ctx context.Context, dir, volume string) error {
	if volume == "" {
		return errors.New("--volume is missing; give the name of the VMI's volume")
	}
	for {
		if err := holdOnce(ctx, dir, volume); ctx.Err() != nil {
			return nil //nolint:nilerr // the end that was asked for
		} else if err != nil {
			return err
		}
	}
}

// holdOnce holds one connection until it ends. A handler that refuses it is an error; one
// that went away is not.
func holdOnce(ctx context.Context, dir, volume string) error {
	socket, err := connect(ctx, dir)
	if err != nil {
		return err
	}
	conn := wire.NewConn(socket, func(context.Context, wire.Request) (any, error) {
		return nil, errors.New("an attachment pod takes no requests")
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = conn.Serve(ctx) // whatever ended it, the next connection tells more
	}()
	hello := wire.Hello{Version: wire.Version, Role: wire.RoleVolume, Volume: volume}
	if err := conn.Call(ctx, wire.TypeHello, hello, nil); err != nil && !errors.Is(err, wire.ErrClosed) {
		_ = conn.Close()
		<-ended
		return err //nolint:wrapcheck // it says what was called
	}
	<-ended
	return nil
}
