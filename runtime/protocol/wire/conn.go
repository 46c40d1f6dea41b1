package wire

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// maxFrame bounds a frame; a VMI is at most the 1.5 MiB that etcd takes.
const maxFrame = 4 << 20

// maxFiles bounds the files of one frame (the kernel's own bound is 253).
const maxFiles = 64

// sendTimeout is how long the other side may take to make room for a frame.
const sendTimeout = 10 * time.Second

// ErrClosed is returned by calls whose connection ended before the reply came.
var ErrClosed = errors.New("connection closed before the reply")

// Request is a message from the other side.
type Request struct {
	Type    Type
	Payload json.RawMessage
	// Files are open files that came with the message; the receiver closes them.
	Files []*os.File
}

// Decode unpacks the request's payload into out.
func (r Request) Decode(out any) error {
	if err := json.Unmarshal(r.Payload, out); err != nil {
		return fmt.Errorf("decoding payload of %s: %w", r.Type, err)
	}
	return nil
}

// Handler answers a request; a nil result makes an empty reply. Each request runs in
// a goroutine of its own, except events, which are handled in the order they came.
type Handler func(ctx context.Context, request Request) (result any, err error)

type frame struct {
	ID      uint64          `json:"id,omitempty"`
	Type    Type            `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// Conn is one end of a connection. Its methods may be called from any goroutine.
type Conn struct {
	socket  *net.UnixConn
	handler Handler

	writing sync.Mutex

	waiting sync.Mutex
	next    uint64
	replies map[uint64]chan frame // nil once the connection ended
}

// NewConn wraps socket; handler receives the other side's requests and events.
// Nothing is read before Serve runs.
func NewConn(socket *net.UnixConn, handler Handler) *Conn {
	return &Conn{socket: socket, handler: handler, replies: map[uint64]chan frame{}}
}

// Close ends the connection; Serve returns and pending calls fail with ErrClosed.
func (c *Conn) Close() error {
	if err := c.socket.Close(); err != nil {
		return fmt.Errorf("closing the connection: %w", err)
	}
	return nil
}

// Peer returns the credentials of the process at the other end, as the kernel has them.
func (c *Conn) Peer() (*syscall.Ucred, error) { return peerCredentials(c.socket) }

// Call sends a request with files and decodes the reply into out, unless out is nil.
func (c *Conn) Call(ctx context.Context, kind Type, in, out any, files ...*os.File) error {
	reply := make(chan frame, 1)
	id, err := c.expect(reply)
	if err != nil {
		return fmt.Errorf("calling %s: %w", kind, err)
	}
	defer c.forget(id)
	if err := c.write(id, kind, in, files); err != nil {
		return fmt.Errorf("calling %s: %w", kind, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting for the reply to %s: %w", kind, ctx.Err())
	case answer, ok := <-reply:
		if !ok {
			return fmt.Errorf("calling %s: %w", kind, ErrClosed)
		}
		if answer.Error != "" {
			return fmt.Errorf("%s: %s", kind, answer.Error)
		}
		if out == nil || len(answer.Payload) == 0 {
			return nil
		}
		if err := json.Unmarshal(answer.Payload, out); err != nil {
			return fmt.Errorf("decoding the reply to %s: %w", kind, err)
		}
		return nil
	}
}

// Notify sends an event, to which no reply comes.
func (c *Conn) Notify(kind Type, payload any) error {
	if err := c.write(0, kind, payload, nil); err != nil {
		return fmt.Errorf("sending %s: %w", kind, err)
	}
	return nil
}

// Serve reads frames until the connection ends or ctx is done; a clean end of the
// other side is no error.
func (c *Conn) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = c.socket.Close() })
	defer stop()
	defer c.end()
	for {
		f, files, err := c.read()
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a frame: %w", err)
		}
		if f.Type == TypeReply {
			closeAll(files)
			c.deliver(f)
			continue
		}
		request := Request{Type: f.Type, Payload: f.Payload, Files: files}
		if f.ID == 0 {
			_, _ = c.handler(ctx, request) // an event has nobody to tell
			continue
		}
		go c.answer(ctx, f.ID, request)
	}
}

func (c *Conn) answer(ctx context.Context, id uint64, request Request) {
	result, err := c.handler(ctx, request)
	reply := frame{ID: id, Type: TypeReply}
	if err == nil && result != nil {
		reply.Payload, err = json.Marshal(result)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	_ = c.send(reply, nil) // a lost connection is Serve's to report
}

func (c *Conn) write(id uint64, kind Type, payload any, files []*os.File) error {
	f := frame{ID: id, Type: kind}
	if payload != nil {
		data, err := json.Marshal(payload)
		if err != nil {
			return fmt.Errorf("encoding payload: %w", err)
		}
		f.Payload = data
	}
	return c.send(f, files)
}

func (c *Conn) send(f frame, files []*os.File) error {
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding frame: %w", err)
	}
	if len(body) > maxFrame {
		return fmt.Errorf("frame of %d bytes is over the bound of %d", len(body), maxFrame)
	}
	if len(files) > maxFiles {
		return fmt.Errorf("%d files are over the bound of %d", len(files), maxFiles)
	}
	message := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	message = append(message, body...)
	c.writing.Lock()
	defer c.writing.Unlock()
	err = c.put(message, files)
	if err == nil {
		return nil
	}
	_ = c.socket.Close() // a part of a frame may be on its way, and nothing can follow it
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("writing frame: %w", err)
}

// put writes message. Who reads nothing any more, until the socket is full, holds up nobody for ever.
func (c *Conn) put(message []byte, files []*os.File) error {
	if err := c.socket.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("bounding the time: %w", err)
	}
	sent, _, err := c.socket.WriteMsgUnix(message, rights(files), nil)
	if err == nil && sent < len(message) {
		_, err = c.socket.Write(message[sent:])
	}
	return err //nolint:wrapcheck // send does
}

func (c *Conn) read() (frame, []*os.File, error) {
	var header [4]byte
	files, err := readWithFiles(c.socket, header[:])
	if err != nil {
		closeAll(files)
		return frame{}, nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size > maxFrame {
		closeAll(files)
		return frame{}, nil, fmt.Errorf("frame of %d bytes is over the bound of %d", size, maxFrame)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.socket, body); err != nil {
		closeAll(files)
		return frame{}, nil, fmt.Errorf("reading frame: %w", err)
	}
	var f frame
	if err := json.Unmarshal(body, &f); err != nil {
		closeAll(files)
		return frame{}, nil, fmt.Errorf("decoding frame: %w", err)
	}
	return f, files, nil
}

func (c *Conn) expect(reply chan frame) (uint64, error) {
	c.waiting.Lock()
	defer c.waiting.Unlock()
	if c.replies == nil {
		return 0, ErrClosed
	}
	c.next++
	c.replies[c.next] = reply
	return c.next, nil
}

func (c *Conn) forget(id uint64) {
	c.waiting.Lock()
	defer c.waiting.Unlock()
	delete(c.replies, id)
}

func (c *Conn) deliver(f frame) {
	c.waiting.Lock()
	defer c.waiting.Unlock()
	if reply, ok := c.replies[f.ID]; ok {
		reply <- f // buffered: one reply per id
		delete(c.replies, f.ID)
	}
}

func (c *Conn) end() {
	_ = c.socket.Close()
	c.waiting.Lock()
	defer c.waiting.Unlock()
	for _, reply := range c.replies {
		close(reply)
	}
	c.replies = nil
}
