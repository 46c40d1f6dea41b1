package imageupload

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cdiupload "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	shared "github.com/slipway-vm/slipway/internal/upload"
)

// breaking is a proxy whose first upload breaks; it keeps what has come when it can.
type breaking struct {
	keeps bool
	got   []byte
	names map[string]bool
	posts int
}

func (b *breaking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.names[r.Header.Get(shared.HeaderUpload)] = true
	switch {
	case r.Header.Get("Authorization") != "Bearer token":
		w.WriteHeader(http.StatusBadRequest)
	case r.Method == http.MethodHead && b.keeps:
		w.Header().Set(shared.HeaderOffset, strconv.Itoa(len(b.got)))
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusNotFound)
	case b.posts == 0:
		b.posts++
		b.got = make([]byte, 100_000)
		_, _ = io.ReadFull(r.Body, b.got)
		panic(http.ErrAbortHandler)
	default:
		b.posts++
		offset, _ := strconv.Atoi(r.Header.Get(shared.HeaderOffset))
		rest, _ := io.ReadAll(r.Body)
		b.got = append(b.got[:offset], rest...)
	}
}

// A network that is away is away for the API server, too.
func TestATokenIsAskedForAgain(t *testing.T) {
	resource := cdiupload.SchemeGroupVersion.WithResource("uploadtokenrequests").GroupResource()
	for name, c := range map[string]struct {
		err    error
		passes bool
	}{
		"no way":         {&url.Error{Op: "Post", URL: "https://api", Err: &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}}, true},
		"no name":        {&url.Error{Op: "Post", URL: "https://api", Err: &net.DNSError{Err: "no such host", Name: "api", IsNotFound: true}}, true},
		"half an answer": {fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), true},
		"too busy":       {apierrors.NewTooManyRequests("later", 1), true},
		"no backend":     {apierrors.NewGenericServerResponse(http.StatusBadGateway, "POST", resource, "", "", 0, false), true},
		"an accident":    {apierrors.NewInternalError(errors.New("no key")), true},
		"no right":       {apierrors.NewForbidden(resource, "", nil), false},
		"nobody":         {apierrors.NewUnauthorized("no"), false},
		"no certificate": {&url.Error{Op: "Post", URL: "https://api", Err: x509.UnknownAuthorityError{}}, false},
	} {
		to, _ := sending(options{image: "x"})
		to.client = interceptor.NewClient(to.client, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return c.err },
		})
		_, err := to.token(t.Context())
		if _, passes := errors.AsType[transient](err); passes != c.passes || !errors.Is(err, c.err) {
			t.Errorf("%s: %v passes: %t", name, err, passes)
		}
	}
}

// A connection may die without a word.
func TestWhatIsNotTakenIsSentAgain(t *testing.T) {
	const size = 32 << 20 // more than the buffers on its way hold
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	for patience := 2 * time.Second; ; patience *= 2 { // until it is enough for the connection that lives
		rest, out, err := sendStalling(t, path, patience)
		if err != nil && patience < time.Minute {
			continue
		}
		if err != nil || rest != size-100 || !strings.Contains(out, "sending the image: nothing more of it is taken; sending it again") {
			t.Errorf("%v: %d bytes came by the second connection\n%s", err, rest, out)
		}
		return
	}
}

// sendStalling sends the image to a proxy that takes 100 bytes of it by the first connection, and then says nothing. It returns
// how many bytes came by the second one.
func sendStalling(t *testing.T, path string, patience time.Duration) (came int64, said string, err error) {
	t.Helper()
	var posts, rest atomic.Int64
	asked := make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodHead:
			ask()
			w.Header().Set(shared.HeaderOffset, "100")
		case posts.Add(1) == 1:
			_, _ = io.ReadFull(r.Body, make([]byte, 100))
			select {
			case <-asked:
			case <-t.Context().Done():
			}
			panic(http.ErrAbortHandler)
		default:
			n, _ := io.Copy(io.Discard, r.Body)
			rest.Store(n)
		}
	}))
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	to, out := sending(options{image: path, retries: 1})
	to.client, to.patience = tokens(to.client), patience
	if err := to.open(); err != nil {
		t.Fatal(err)
	}
	defer to.file.Close()
	defer ask() // nobody may have
	err = to.sendRepeatedly(t.Context(), &proxy{base: base, http: server.Client()})
	return rest.Load(), out.String(), err
}

// A proxy before the upload server that has lost patience, or knows nothing, does not end an upload.
func TestWhoSaysNothingOfAnUploadEndsNone(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		offset string
		came   int64
		passes bool
	}{
		"so much":             {http.StatusOK, "5", 5, false},
		"nothing of it":       {http.StatusNotFound, "", 0, false},
		"no such question":    {http.StatusMethodNotAllowed, "", 0, false},
		"too late":            {http.StatusGatewayTimeout, "", 0, true},
		"too much":            {http.StatusTooManyRequests, "", 0, true},
		"an old token":        {http.StatusUnauthorized, "", 0, true},
		"a page":              {http.StatusOK, "", 0, true},
		"more than there is":  {http.StatusOK, "11", 0, true},
		"no upload server":    {http.StatusServiceUnavailable, "", 0, true},
		"a lost way to there": {http.StatusBadGateway, "", 0, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(shared.HeaderOffset, c.offset)
			w.WriteHeader(c.code)
		}))
		base, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		to, _ := sending(options{image: "x"})
		to.client, to.bytes = tokens(to.client), 10
		came, err := to.came(t.Context(), &proxy{base: base, http: server.Client()}, "upload")
		server.Close()
		if _, passes := errors.AsType[transient](err); came != c.came || passes != c.passes || !passes && err != nil {
			t.Errorf("%s: %d bytes, %v", name, came, err)
		}
	}
	for _, code := range []int{http.StatusGatewayTimeout, http.StatusRequestTimeout, http.StatusTooManyRequests} {
		if !away(code) {
			t.Errorf("%d ends an upload", code)
		}
	}
}

// tokens gives one to everybody.
func tokens(to client.WithWatch) client.WithWatch {
	return interceptor.NewClient(to, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			object.(*cdiupload.UploadTokenRequest).Status.Token = "token"
			return nil
		},
	})
}

// ending is a way to where to leads that ends with its first upload.
func ending(to *proxy) *proxy {
	closed := 0
	first := *to
	first.http = &http.Client{Transport: tripper(func(r *http.Request) (*http.Response, error) {
		if closed > 0 || r.Method == http.MethodHead {
			return nil, errors.New("the forwarded port is closed")
		}
		return to.http.Transport.RoundTrip(r)
	})}
	first.close = func() { closed++ }
	first.again = func(context.Context) (*proxy, error) {
		if closed != 1 {
			return nil, fmt.Errorf("the last way was closed %d times", closed)
		}
		return to, nil
	}
	return &first
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestWhatBreaksOffIsSentAgain(t *testing.T) {
	data := bytes.Repeat([]byte("a slipway is a ramp\n"), 50_000)
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		keeps, ends bool
		says        string
	}{
		"where it stopped":           {true, false, "Going on after 100000 of 1000000 bytes"},
		"from its beginning, to CDI": {false, false, "sending it again in 2s"},
		"by another way":             {true, true, "Going on after 100000 of 1000000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &breaking{keeps: c.keeps, names: map[string]bool{}}
			server := httptest.NewServer(b)
			defer server.Close()
			base, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			to, out := sending(options{image: path, retries: 1})
			to.client = tokens(to.client)
			if err := to.open(); err != nil {
				t.Fatal(err)
			}
			defer to.file.Close()
			way := &proxy{base: base, http: server.Client()}
			if c.ends {
				way = ending(way)
			}
			if err := to.sendRepeatedly(t.Context(), way); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !bytes.Equal(b.got, data) || b.posts != 2 || len(b.names) != 1 || b.names[""] {
				t.Errorf("%d bytes came by %d requests, called %v", len(b.got), b.posts, b.names)
			}
			if !strings.Contains(out.String(), c.says) {
				t.Errorf("it does not say %q:\n%s", c.says, out)
			}
		})
	}
}
