package registry

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slipway-vm/slipway/tasks/disk-uploader/containerdisk"
)

// server is a registry with TLS, and before it a handler that may do something else with a request.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
}

// serve starts a registry; before returns true for the requests that it has answered.
func serve(t *testing.T, before func(w http.ResponseWriter, r *http.Request, whole http.Handler) bool) *server {
	t.Helper()
	real := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := &server{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.Header.Get("Content-Range"))
		s.mu.Unlock()
		if before == nil || !before(w, r, real) {
			real.ServeHTTP(w, r)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	return s
}

func (s *server) count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		if strings.HasPrefix(request, prefix) {
			n++
		}
	}
	return n
}

// repository is one in the registry, whose waits are short and whose chunks are of 1000 bytes.
func (s *server) repository(t *testing.T, change ...func(*Options)) *Repository {
	t.Helper()
	options := Options{Authorities: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
	for _, c := range change {
		c(&options)
	}
	r, err := Parse(strings.TrimPrefix(s.URL, "https://")+"/team/golden:v1", options, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.retry.backoff = wait.Backoff{Duration: time.Millisecond, Steps: 4}
	r.chunk = 1000
	return r
}

// blob is a Produce of n bytes, in pieces that are no divisors of a chunk.
func blob(n int) (Produce, v1.Hash) {
	data := bytes.Repeat([]byte("0123456789abc"), n/13+1)[:n]
	hash, _, _ := v1.SHA256(bytes.NewReader(data))
	return func(w io.Writer) (containerdisk.Layer, error) {
		for rest := data; len(rest) > 0; {
			k := min(len(rest), 333)
			if _, err := w.Write(rest[:k]); err != nil {
				return containerdisk.Layer{}, err
			}
			rest = rest[k:]
		}
		return containerdisk.Layer{Blob: containerdisk.Blob{Digest: hash, Size: int64(n)}}, nil
	}, hash
}

// has asks the registry itself.
func (s *server) has(t *testing.T, hash v1.Hash) bool {
	t.Helper()
	response, err := s.Client().Head(s.URL + "/v2/team/golden/blobs/" + hash.String())
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(response.Body.Close()) == nil && response.StatusCode == http.StatusOK
}

func TestABlobIsSentInChunksAndAgainWhenAConnectionBreaks(t *testing.T) {
	hangUp := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		// fault answers the request number n of its method, from 1; it returns whether it did.
		fault func(w http.ResponseWriter, r *http.Request, n int, whole http.Handler) bool
		// patches is how many chunks were sent in all.
		patches int
	}{
		"nothing breaks": {func(http.ResponseWriter, *http.Request, int, http.Handler) bool { return false }, 5},
		"a chunk gets no answer and did not arrive": {func(w http.ResponseWriter, r *http.Request, n int, _ http.Handler) bool {
			if r.Method == http.MethodPatch && n == 2 {
				hangUp(w)
			}
			return false
		}, 6},
		"a chunk arrived and its answer was lost": {func(w http.ResponseWriter, r *http.Request, n int, whole http.Handler) bool {
			if r.Method == http.MethodPatch && n == 2 {
				whole.ServeHTTP(httptest.NewRecorder(), r)
				hangUp(w)
			}
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/uploads/") {
				w.Header().Set("Range", "0-1999")
				w.WriteHeader(http.StatusNoContent)
				return true
			}
			return false
		}, 5},
		"the same, and the registry does not tell": {func(w http.ResponseWriter, r *http.Request, n int, whole http.Handler) bool {
			if r.Method == http.MethodPatch && n == 2 {
				whole.ServeHTTP(httptest.NewRecorder(), r)
				hangUp(w)
			}
			return false
		}, 3 + 5},
		"the registry is overloaded for a while": {func(w http.ResponseWriter, r *http.Request, n int, _ http.Handler) bool {
			if n == 1 {
				http.Error(w, "later", http.StatusServiceUnavailable)
			}
			return n == 1
		}, 6},
		"the end arrived and its answer was lost": {func(w http.ResponseWriter, r *http.Request, n int, whole http.Handler) bool {
			if r.Method == http.MethodPut && n == 1 {
				whole.ServeHTTP(httptest.NewRecorder(), r)
				hangUp(w)
			}
			return false
		}, 5},
		"the registry takes no chunks": {func(w http.ResponseWriter, r *http.Request, _ int, _ http.Handler) bool {
			if r.Method == http.MethodPatch && r.Header.Get("Content-Range") != "" {
				http.Error(w, "no", http.StatusRequestedRangeNotSatisfiable)
				return true
			}
			return false
		}, 2},
		"it takes none, and the stream breaks": {func(w http.ResponseWriter, r *http.Request, n int, _ http.Handler) bool {
			if r.Method == http.MethodPatch && r.Header.Get("Content-Range") != "" {
				http.Error(w, "no", http.StatusMethodNotAllowed)
				return true
			}
			if r.Method == http.MethodPatch && n == 2 {
				hangUp(w)
			}
			return false
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			seen := map[string]int{}
			s := serve(t, func(w http.ResponseWriter, r *http.Request, whole http.Handler) bool {
				mu.Lock()
				seen[r.Method]++
				n := seen[r.Method]
				mu.Unlock()
				return c.fault(w, r, n, whole)
			})
			r := s.repository(t)
			if err := r.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			produce, hash := blob(4500)
			layer, err := r.Stream(t.Context(), produce)
			if err != nil || layer.Digest != hash {
				t.Fatalf("%v, %v", layer, err)
			}
			if !s.has(t, hash) {
				t.Error("the registry does not have it")
			}
			if got := s.count("PATCH"); got != c.patches {
				t.Errorf("%d chunks were sent, want %d: %v", got, c.patches, s.requests)
			}
		})
	}
}

func TestFailuresThatLastEndInWords(t *testing.T) {
	broken := errors.New("medium error")
	for name, c := range map[string]struct {
		code    int
		produce Produce
		want    string
	}{
		"the registry is broken":     {http.StatusBadGateway, nil, "given up after 4 attempts"},
		"the credentials are wrong":  {http.StatusUnauthorized, nil, "check the credentials in the Secret (keys accessKeyId and secretKey)"},
		"the account may not push":   {http.StatusForbidden, nil, "and their right to push"},
		"the disk cannot be read":    {0, func(io.Writer) (containerdisk.Layer, error) { return containerdisk.Layer{}, broken }, "medium error"},
		"the repository is not ours": {http.StatusNotFound, nil, "404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				if c.code == 0 || r.Method == http.MethodGet {
					return false
				}
				http.Error(w, `{"errors":[{"code":"X","message":"said so"}]}`, c.code)
				return true
			})
			r := s.repository(t)
			if err := r.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			produce, _ := blob(1500)
			if c.produce != nil {
				produce = c.produce
			}
			_, err := r.Stream(t.Context(), produce)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ended with %v, want %q", err, c.want)
			}
			if c.code != 0 && (err == nil || !strings.Contains(err.Error(), "X said so")) {
				t.Errorf("%v lacks the registry's words", err)
			}
		})
	}
}

func TestConnecting(t *testing.T) {
	s := serve(t, nil)
	t.Run("an authority that is not trusted", func(t *testing.T) {
		err := s.repository(t, func(o *Options) { o.Authorities = nil }).Connect(t.Context())
		if err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "given up") {
			t.Error(err)
		}
	})
	t.Run("an authority that is none", func(t *testing.T) {
		if err := s.repository(t, func(o *Options) { o.Authorities = []byte("x") }).Connect(t.Context()); err == nil {
			t.Error("it was taken")
		}
	})
	t.Run("nobody is there", func(t *testing.T) {
		gone := serve(t, nil)
		gone.Close()
		err := gone.repository(t).Connect(t.Context())
		if err == nil || !strings.Contains(err.Error(), "connecting to registry") || !strings.Contains(err.Error(), "given up after 4 attempts") {
			t.Error(err)
		}
	})
	t.Run("time is up", func(t *testing.T) {
		gone := serve(t, nil)
		gone.Close()
		late := errors.New("the push took longer than it may")
		ctx, stop := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, late)
		defer stop()
		r := gone.repository(t)
		r.retry.backoff = wait.Backoff{Duration: time.Hour, Steps: 4}
		if err := r.Connect(ctx); !errors.Is(err, late) {
			t.Error(err)
		}
	})
}

func TestNothingIsSentWithoutTLSUnlessAsked(t *testing.T) {
	plain := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(plain.Close)
	destination := strings.TrimPrefix(plain.URL, "http://") + "/x"
	connect := func(asked bool) error {
		r, err := Parse(destination, Options{PlainHTTP: asked}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r.retry.backoff = wait.Backoff{Duration: time.Millisecond, Steps: 2}
		return r.Connect(t.Context())
	}
	if err := connect(false); err == nil {
		t.Error("a registry without TLS was taken")
	}
	if err := connect(true); err != nil {
		t.Error(err)
	}
	t.Run("an upload that is sent on without TLS", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if r.Method == http.MethodPost {
				w.Header().Set("Location", plain.URL+"/v2/x/blobs/uploads/1")
				w.WriteHeader(http.StatusAccepted)
			}
			return r.Method == http.MethodPost
		})
		r := s.repository(t)
		if err := r.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Blob(t.Context(), []byte("x")); !errors.Is(err, ErrPlain) {
			t.Error(err)
		}
	})
}

func TestCredentials(t *testing.T) {
	basic := func(w http.ResponseWriter, r *http.Request) bool {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
			http.Error(w, "", http.StatusUnauthorized)
			return false
		}
		return true
	}
	me := func(o *Options) { o.User, o.Password = "me", "secret" }
	t.Run("basic", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool { return !basic(w, r) })
		r := s.repository(t, me)
		if err := r.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Blob(t.Context(), []byte("x")); err != nil {
			t.Error(err)
		}
		if err := s.repository(t).Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("without credentials: %v", err)
		}
	})
	t.Run("a token, which expires", func(t *testing.T) {
		tokens := 0
		var s *server
		s = serve(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if r.URL.Path == "/token" {
				if !basic(w, r) {
					return true
				}
				if got := r.URL.Query(); got.Get("scope") != "repository:team/golden:pull,push" || got.Get("service") != "us" {
					t.Errorf("asked for %v", got)
				}
				tokens++
				fmt.Fprintf(w, `{"token":"t%d"}`, tokens)
				return true
			}
			wanted := fmt.Sprintf("Bearer t%d", max(1, tokens))
			if r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Range"), "1000-") && tokens == 1 {
				wanted = "Bearer t2"
			}
			if r.Header.Get("Authorization") != wanted {
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+s.URL+`/token",service="us"`)
				http.Error(w, "", http.StatusUnauthorized)
				return true
			}
			return false
		})
		r := s.repository(t, me)
		if err := r.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		produce, hash := blob(2500)
		if _, err := r.Stream(t.Context(), produce); err != nil {
			t.Fatal(err)
		}
		if tokens != 2 {
			t.Errorf("%d tokens were asked for", tokens)
		}
		_ = hash
		if err := s.repository(t, func(o *Options) { o.User, o.Password = "me", "wrong" }).Connect(t.Context()); err == nil || strings.Contains(err.Error(), "wrong") {
			t.Errorf("with a wrong password: %v", err)
		}
	})
}

func TestDestinations(t *testing.T) {
	for destination, want := range map[string]string{
		"registry.example.com/a/b:v1":   "registry.example.com/a/b:v1",
		"registry.example.com:5000/a":   "registry.example.com:5000/a:latest",
		"docker://registry.example/a:b": "registry.example/a:b",
	} {
		if r, err := Parse(destination, Options{}, nil); err != nil || r.String() != want {
			t.Errorf("%s: %v, %v", destination, r, err)
		}
	}
	for _, bad := range []string{"", "https://registry.example.com/a", "registry.example.com/A B", "registry.example.com/a@sha256:" + strings.Repeat("0", 64)} {
		if r, err := Parse(bad, Options{}, nil); err == nil {
			t.Errorf("%q was taken as %s", bad, r)
		}
	}
}

func TestAManifestIsPushedUnderItsTag(t *testing.T) {
	s := serve(t, nil)
	r := s.repository(t)
	if err := r.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	var layer containerdisk.Layer
	produce, _ := blob(2000)
	var err error
	if layer, err = r.Stream(t.Context(), produce); err != nil {
		t.Fatal(err)
	}
	layer.DiffID = layer.Digest
	image := containerdisk.Image{Layer: layer, Architecture: "amd64"}
	config, err := image.Config()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Blob(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest(config)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := r.Manifest(t.Context(), manifest)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Get(s.URL + "/v2/team/golden/manifests/v1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil || !bytes.Equal(got, manifest) || response.Header.Get("Docker-Content-Digest") != digest {
		t.Errorf("%s with digest %s, want %s (%v)", got, response.Header.Get("Docker-Content-Digest"), digest, err)
	}
}
