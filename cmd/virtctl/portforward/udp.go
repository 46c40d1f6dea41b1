package portforward

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// datagram is the longest that there can be.
const datagram = 64 << 10

// associations are the streams of those who send datagrams to a local port, by their addresses.
type associations struct {
	*forwarder
	port   port
	local  net.PacketConn
	lock   sync.Mutex
	others map[string]*subresource.Stream
}

// listenUDP leads datagrams to address to the port, until ctx ends: for each sender by a stream of
// its own, which brings the answers back.
func (f *forwarder) listenUDP(ctx context.Context, address string, p port) error {
	local, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("opening the local port: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = local.Close() })
	a := &associations{forwarder: f, port: p, local: local, others: map[string]*subresource.Stream{}}
	go a.receive(ctx)
	return nil
}

func (a *associations) receive(ctx context.Context) {
	buffer := make([]byte, datagram)
	for {
		n, sender, err := a.local.ReadFrom(buffer)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			a.say("error receiving on port %d: %v", a.port.local, err)
			return
		}
		stream, err := a.of(ctx, sender)
		if err == nil {
			_, err = stream.Write(buffer[:n])
		}
		if err != nil { // the datagram is lost, as datagrams may be
			a.say("%v", err)
		}
	}
}

// of returns the stream of a sender, a new one for whom is not known.
func (a *associations) of(ctx context.Context, sender net.Addr) (*subresource.Stream, error) {
	a.lock.Lock()
	stream := a.others[sender.String()]
	a.lock.Unlock()
	if stream != nil {
		return stream, nil
	}
	a.say("opening new udp tunnel to %d", a.port.remote)
	stream, err := a.open(ctx, a.port)
	if err != nil {
		return nil, err
	}
	a.lock.Lock()
	a.others[sender.String()] = stream
	a.lock.Unlock()
	context.AfterFunc(ctx, func() { _ = stream.Close() })
	go a.answer(stream, sender)
	return stream, nil
}

// answer sends what comes back to the sender, until the stream ends.
func (a *associations) answer(stream *subresource.Stream, sender net.Addr) {
	buffer := make([]byte, datagram)
	for {
		n, err := stream.Read(buffer)
		if err != nil {
			break
		}
		if _, err := a.local.WriteTo(buffer[:n], sender); err != nil {
			break
		}
	}
	a.lock.Lock()
	delete(a.others, sender.String())
	a.lock.Unlock()
	_ = stream.Close()
}
