package subresource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
)

const (
	// plain is the sub-protocol of the streams: bytes, in binary frames.
	plain = "plain.kubevirt.io"
	// frameSize holds any datagram, so that each is sent as one frame.
	frameSize = 64 << 10
	// goodbye is how long the other side has to take the frame that ends a stream.
	goodbye = time.Second
)

// Stream is a connection to a device or a port of a guest. One reader and one writer may use it at
// once. It ends with io.EOF when the other side closes it as over.
type Stream struct {
	conn  *websocket.Conn
	frame io.Reader // what is left of the frame that is being read
	close sync.Once
}

// Stream opens the stream at path below an object.
func (a *API) Stream(ctx context.Context, of Object, path string, query url.Values) (*Stream, error) {
	address := withQuery(a.request("GET", of, path), query).URL()
	address.Scheme = strings.Replace(address.Scheme, "http", "ws", 1)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("opening %s of %s: %w", path, of.name, err)
	}
	opener, err := newOpener(a.config, of)
	if err != nil {
		return nil, err
	}
	// What the kubeconfig says of authentication is in these wrappers.
	wrapped, err := rest.HTTPWrappersForConfig(a.config, opener)
	if err != nil {
		return nil, fmt.Errorf("reading how to authenticate: %w", err)
	}
	response, err := wrapped.RoundTrip(request)
	if err != nil {
		return nil, served(err)
	}
	_ = response.Body.Close() // empty: the connection is the stream's now
	return &Stream{conn: opener.conn}, nil
}

// opener is an http.RoundTripper of one request, which becomes a websocket.
type opener struct {
	dialer websocket.Dialer
	of     Object
	conn   *websocket.Conn
}

func newOpener(config *rest.Config, of Object) (*opener, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the certificates of the cluster: %w", err)
	}
	proxy := http.ProxyFromEnvironment
	if config.Proxy != nil {
		proxy = config.Proxy
	}
	return &opener{of: of, dialer: websocket.Dialer{
		Proxy: proxy, TLSClientConfig: tlsConfig, NetDialContext: config.Dial,
		ReadBufferSize: frameSize, WriteBufferSize: frameSize, Subprotocols: []string{plain},
	}}, nil
}

// RoundTrip opens the websocket.
func (o *opener) RoundTrip(request *http.Request) (*http.Response, error) {
	conn, response, err := o.dialer.DialContext(request.Context(), request.URL.String(), request.Header)
	if err == nil {
		o.conn = conn
		return response, nil
	}
	if response == nil {
		return nil, fmt.Errorf("connecting to %s: %w", request.URL.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	return nil, o.refusal(response)
}

// refusal is the error in an answer that is no websocket: a Status, or what its code says.
func (o *opener) refusal(response *http.Response) error {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the answer %s: %w", response.Status, err)
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	resource := schema.GroupResource{Group: virtv1.SubresourceGroupName, Resource: o.of.resource}
	return apierrors.NewGenericServerResponse(response.StatusCode, "get", resource, o.of.name, string(body), 0, true)
}

// Read reads bytes, from one frame at the most.
func (s *Stream) Read(p []byte) (int, error) {
	for {
		if s.frame == nil {
			_, frame, err := s.conn.NextReader()
			if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				return 0, io.EOF
			}
			if err != nil {
				return 0, brokenError{doing: "reading from the guest", err: err}
			}
			s.frame = frame
		}
		n, err := s.frame.Read(p)
		if err != nil {
			s.frame = nil
		}
		if n > 0 {
			return n, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, brokenError{doing: "reading from the guest", err: err}
		}
	}
}

// Write sends p as one frame.
func (s *Stream) Write(p []byte) (int, error) {
	if err := s.conn.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, brokenError{doing: "writing to the guest", err: err}
	}
	return len(p), nil
}

// brokenError is why nothing more comes or goes by a stream.
type brokenError struct {
	doing string
	err   error
}

func (e brokenError) Error() string { return e.doing + ": " + e.err.Error() }

func (e brokenError) Unwrap() error { return e.err }

// Broken says whether err is of a stream, and not of what it was joined to.
func Broken(err error) bool {
	var broken brokenError
	return errors.As(err, &broken)
}

// Close ends the stream, and whoever reads or writes it.
func (s *Stream) Close() error {
	var err error
	s.close.Do(func() {
		over := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		_ = s.conn.WriteControl(websocket.CloseMessage, over, time.Now().Add(goodbye))
		err = s.conn.Close()
	})
	return err
}

// Farewell returns what the other side said when it ended for good a stream of which reading failed
// with err. It is false when the connection broke and nobody said anything, or when the other side
// only goes away, as in a restart.
func Farewell(err error) (string, bool) {
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code == websocket.CloseAbnormalClosure || closed.Code == websocket.CloseGoingAway {
		return "", false
	}
	if closed.Text == "" {
		return fmt.Sprintf("the connection was closed with code %d", closed.Code), true
	}
	return closed.Text, true
}

// Join copies bytes between the stream and local until one of them or ctx ends, and closes both.
func (s *Stream) Join(ctx context.Context, local io.ReadWriteCloser) error {
	received, sent := make(chan error, 1), make(chan error, 1)
	pass := func(to io.Writer, from io.Reader, ended chan<- error) {
		_, err := io.Copy(to, from)
		ended <- err
	}
	go pass(s, local, sent)
	go pass(local, s, received)
	defer func() {
		_ = s.Close()
		_ = local.Close()
	}()
	select {
	case err := <-received:
		return err
	case err := <-sent:
		if !Broken(err) {
			return err
		}
		select { // what the other side said before it closed is read
		case err := <-received:
			return err
		case <-time.After(goodbye):
			return err
		}
	case <-ctx.Done():
		return nil
	}
}
