package vnc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// patience is how long a viewer that was started has to connect.
const patience = time.Minute

// session is a user at a screen.
type session struct {
	vmi        string
	say        io.Writer
	connection subresource.Connection
	listener   *net.TCPListener
	// view runs a viewer until it is closed; nil leaves that to the user.
	view func(ctx context.Context, address string) error
}

// run shows what comes by stream until the viewer leaves, and opens the stream again where it breaks.
func (s *session) run(ctx context.Context, stream *subresource.Stream) error {
	for {
		end := s.show(ctx, stream)
		if ctx.Err() != nil {
			return nil
		}
		if !subresource.Broken(end) {
			return end
		}
		if text, told := subresource.Farewell(end); told {
			return errors.New("disconnected from the screen: " + text)
		}
		s.tell("You were disconnected from the screen of %s.", s.vmi)
		var err error
		stream, err = s.connection.Reconnect(ctx, end, s.tell)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.dismiss(ctx); err != nil && ctx.Err() == nil {
			return errors.Join(err, stream.Close())
		}
		if s.view == nil {
			s.tell("Successfully connected to the screen of %s. Connect your viewer again.", s.vmi)
		} else {
			s.tell("Successfully connected to the screen of %s.", s.vmi)
		}
	}
}

// dismiss hangs up on viewers that came while there was no screen to show: they may have given up since, and then the screen would
// be taken for closed. It queues behind them to know the last one.
func (s *session) dismiss(ctx context.Context) error {
	own, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", reached(s.listener.Addr()))
	if err != nil {
		return fmt.Errorf("sending viewers away: %w", err)
	}
	defer own.Close()
	if err := s.listener.SetDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("sending viewers away: %w", err)
	}
	for {
		viewer, err := s.listener.Accept()
		if err != nil {
			return fmt.Errorf("sending viewers away: %w", err)
		}
		last := viewer.RemoteAddr().String() == own.LocalAddr().String()
		_ = viewer.Close()
		if last {
			return nil
		}
	}
}

// reached is the address by which this machine reaches its listener at address.
func reached(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return address.String()
	}
	loopback := net.IPv6loopback
	if tcp.IP.To4() != nil {
		loopback = net.IPv4(127, 0, 0, 1)
	}
	return net.JoinHostPort(loopback.String(), strconv.Itoa(tcp.Port))
}

func (s *session) tell(format string, args ...any) { fmt.Fprintf(s.say, format+"\n", args...) }

// show passes the next viewer that connects to the stream, until one of them ends.
func (s *session) show(ctx context.Context, stream *subresource.Stream) error {
	defer func() { _ = stream.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a viewer that was started ends with the stream
	deadline, viewed := time.Time{}, make(chan error, 1)
	if s.view != nil {
		deadline = time.Now().Add(patience)
		go func() { viewed <- s.view(ctx, s.listener.Addr().String()) }()
	}
	if err := s.listener.SetDeadline(deadline); err != nil {
		return fmt.Errorf("waiting for the viewer: %w", err)
	}
	connected, failed := make(chan net.Conn, 1), make(chan error, 1)
	go func() {
		viewer, err := s.listener.Accept()
		if err != nil {
			failed <- fmt.Errorf("waiting for the viewer: %w", err)
			return
		}
		connected <- viewer
	}()
	select {
	case viewer := <-connected:
		return stream.Join(ctx, viewer)
	case err := <-failed:
		return err
	case err := <-viewed: // without having connected
		return err
	}
}
