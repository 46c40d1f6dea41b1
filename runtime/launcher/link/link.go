// Package link keeps the launcher's connection to its node's virt-handler: it waits
// for the handler's socket, says hello, sends every State, passes requests on, and
// begins again for ever when the handler goes away.
package link

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

const (
	helloTimeout = 10 * time.Second
	// A socket that refuses is tried again by itself, for its file may stay the same
	// while its handler starts to listen.
	firstRetry, lastRetry = 20 * time.Millisecond, 5 * time.Second
)

// Options of a link.
type Options struct {
	// Dir is the folder in which the handler makes its socket Name.
	Dir, Name string
	// Hello introduces the launcher.
	Hello wire.Hello
	// Handler answers the handler's requests.
	Handler wire.Handler
	Log     *slog.Logger
}

// Link is the launcher's end.
type Link struct {
	options Options

	mu     sync.Mutex
	state  protocol.State
	conn   *wire.Conn    // nil while the handler is away
	joined chan struct{} // closed when conn is set; made anew when it is lost
	dirty  chan struct{} // holds an item when state is not sent yet
}

// New returns a link; Run connects it.
func New(options Options) *Link {
	return &Link{options: options, joined: make(chan struct{}), dirty: make(chan struct{}, 1)}
}

// Publish sends state to the handler as soon as there is one. States that a slow or
// absent handler did not get are replaced by the latest.
func (l *Link) Publish(state protocol.State) {
	l.mu.Lock()
	l.state = state
	l.mu.Unlock()
	l.mark()
}

// State is what was published last.
func (l *Link) State() protocol.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *Link) mark() {
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}

// Flush sends the last state and returns once the handler has taken it, also when it
// must first come back.
func (l *Link) Flush(ctx context.Context, state protocol.State) error {
	for {
		conn, joined := l.current()
		if conn == nil {
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting for virt-handler to take the last state: %w", ctx.Err())
			case <-joined:
			}
			continue
		}
		err := conn.Call(ctx, protocol.TypeState, state, nil)
		if err == nil || ctx.Err() != nil || !disconnected(err) {
			return err
		}
		l.lost(conn)
	}
}

// disconnected tells the loss of the connection from the handler's own refusal.
func disconnected(err error) bool {
	var socket *net.OpError
	return errors.Is(err, wire.ErrClosed) || errors.As(err, &socket)
}

func (l *Link) current() (*wire.Conn, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn, l.joined
}

// Run keeps the link until ctx is done.
func (l *Link) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching for virt-handler's socket: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(l.options.Dir); err != nil {
		return fmt.Errorf("watching %s for virt-handler's socket: %w", l.options.Dir, err)
	}
	retry := firstRetry
	for ctx.Err() == nil {
		socket, err := l.dial(ctx)
		if err == nil {
			retry = firstRetry
			err = l.serve(ctx, socket)
			l.options.Log.Info("Lost the connection to virt-handler", "err", err)
			continue
		}
		pause := retry
		if errors.Is(err, fs.ErrNotExist) {
			pause = 0 // its appearance is told
		}
		l.await(ctx, watcher, pause)
		retry = min(2*retry, lastRetry)
	}
	return nil
}

func (l *Link) dial(ctx context.Context) (*net.UnixConn, error) {
	var dialer net.Dialer
	socket, err := dialer.DialContext(ctx, "unix", filepath.Join(l.options.Dir, l.options.Name))
	if err != nil {
		return nil, fmt.Errorf("connecting to virt-handler: %w", err)
	}
	return socket.(*net.UnixConn), nil
}

// await returns when the socket appears, pause is over (0 for never), or ctx is done.
func (l *Link) await(ctx context.Context, watcher *fsnotify.Watcher, pause time.Duration) {
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case err := <-watcher.Errors:
			l.options.Log.Warn("Missed changes of the socket's folder", "err", err)
			return
		case event := <-watcher.Events:
			if event.Has(fsnotify.Create) && filepath.Base(event.Name) == l.options.Name {
				return
			}
		}
	}
}

// serve runs one connection to its end.
func (l *Link) serve(ctx context.Context, socket *net.UnixConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn := wire.NewConn(socket, l.options.Handler)
	served := make(chan error, 1)
	go func() { served <- conn.Serve(ctx) }()
	if err := l.hello(ctx, conn); err != nil {
		cancel()
		<-served //nolint:errcheck // it ends because of the error that is returned
		return err
	}
	l.join(conn)
	defer l.lost(conn)
	for {
		select {
		case err := <-served:
			return err
		case <-l.dirty:
			if err := l.send(conn); err != nil {
				cancel()
				<-served //nolint:errcheck // it ends because of the error that is returned
				return err
			}
		}
	}
}

func (l *Link) hello(ctx context.Context, conn *wire.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	var answer wire.Hello
	if err := conn.Call(ctx, wire.TypeHello, l.options.Hello, &answer); err != nil {
		return fmt.Errorf("saying hello to virt-handler: %w", err)
	}
	l.options.Log.Info("Connected to virt-handler", "version", answer.Version)
	return nil
}

func (l *Link) join(conn *wire.Conn) {
	l.mu.Lock()
	l.conn = conn
	close(l.joined)
	l.mu.Unlock()
	l.mark() // also when nothing runs yet: the handler waits to hear what does
}

func (l *Link) lost(conn *wire.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == conn {
		l.conn, l.joined = nil, make(chan struct{})
	}
}

func (l *Link) send(conn *wire.Conn) error {
	l.mu.Lock()
	state := l.state
	l.mu.Unlock()
	if err := conn.Notify(protocol.TypeState, state); err != nil {
		return fmt.Errorf("telling virt-handler the state: %w", err)
	}
	return nil
}
