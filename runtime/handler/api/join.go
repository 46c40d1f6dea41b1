package api

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/gorilla/websocket"
)

// goodbyeTimeout bounds how long a client is waited for that is sent away.
const goodbyeTimeout = 2 * time.Second

// goodbye is why a stream ended, as its client is told.
type goodbye struct {
	code int
	text string
}

func (g goodbye) Error() string { return g.text }

// Ends of streams.
var (
	// goodbyeDevice: the device closed it, as when the guest is over.
	goodbyeDevice = goodbye{websocket.CloseNormalClosure, "the guest's end of the connection was closed"}
	// goodbyeClient: the client closed it, or is gone.
	goodbyeClient = goodbye{websocket.CloseNormalClosure, "the client closed the connection"}
	// goodbyeTaken: it would be taken right back by a client that came again at once.
	goodbyeTaken = goodbye{websocket.ClosePolicyViolation, "another client connected to the console"}
	// goodbyeRestart: it can be made again in a moment.
	goodbyeRestart = goodbye{websocket.CloseGoingAway, "virt-handler is being restarted; connect again"}
)

// join copies both ways until either side ends or ctx is done, closes both, and returns why.
func join(ctx context.Context, client *websocket.Conn, device net.Conn) goodbye {
	ended := make(chan goodbye, 2)
	go func() { ended <- output(client, device) }()
	go func() { ended <- input(device, client) }()
	var why goodbye
	left := 2
	select {
	case why = <-ended:
		left--
	case <-ctx.Done():
	}
	if ctx.Err() != nil && !errors.As(context.Cause(ctx), &why) { // also where the device has ended with it
		why = goodbyeRestart
	}
	// Also to a client that does not take what is sent to it.
	_ = client.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(why.code, why.text), time.Now().Add(goodbyeTimeout))
	_ = device.Close()
	_ = client.Close()
	for range left {
		<-ended //nolint:errcheck // the first end is the true one
	}
	return why
}

// output sends what the device says.
func output(client *websocket.Conn, device io.Reader) goodbye {
	buffer := make([]byte, chunk)
	for {
		n, err := device.Read(buffer)
		if n > 0 && client.WriteMessage(websocket.BinaryMessage, buffer[:n]) != nil {
			return goodbyeClient
		}
		if err != nil {
			return goodbyeDevice
		}
	}
}

// input passes on what the client sends, in messages of any kind.
func input(device io.Writer, client *websocket.Conn) goodbye {
	for {
		_, message, err := client.NextReader()
		if err != nil {
			return goodbyeClient
		}
		if _, err := io.Copy(device, message); err != nil {
			if _, closed := errors.AsType[*websocket.CloseError](err); closed {
				return goodbyeClient
			}
			return goodbyeDevice
		}
	}
}
