package imageupload

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	shared "github.com/slipway-vm/slipway/internal/upload"
)

// sendTo sends a small file to a proxy that answer plays, with one retry.
func sendTo(t *testing.T, answer http.HandlerFunc, change func(*claim), objects ...client.Object) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, []byte("a slipway is a ramp\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(answer)
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	to, out := sending(options{image: path, retries: 1}, objects...)
	to.client = tokens(to.client)
	if change != nil {
		change(to)
	}
	if err := to.open(); err != nil {
		t.Fatal(err)
	}
	defer to.file.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err = to.sendRepeatedly(ctx, &proxy{base: base, http: to.httpClient(nil, "")})
	return out.String(), err
}

// A page that wants a password is no upload server, whatever it answers.
func TestNoRedirectIsFollowed(t *testing.T) {
	_, err := sendTo(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			return // 200
		}
		http.Redirect(w, r, "/login", http.StatusFound)
	}, nil)
	if err == nil || !strings.Contains(err.Error(), "unexpected return value 302: it is at http://127.0.0.1:") || !strings.Contains(err.Error(), "--uploadproxy-url") {
		t.Errorf("%v", err)
	}
}

// An answer may never come, by a connection that somebody between holds.
func TestTheDiskIsThereWithoutAnAnswer(t *testing.T) {
	for patience := 100 * time.Millisecond; ; patience *= 2 { // until it is enough to send the file
		out, err := sendTo(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-t.Context().Done():
			case <-r.Context().Done():
			}
		}, func(to *claim) { to.patience = patience }, there(map[string]string{annotationPhase: "Succeeded"}))
		if err == nil && !strings.Contains(out, "again") {
			return
		}
		if patience > time.Minute {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// A proxy before the server that loses patience while the disk is written costs no retry.
func TestAFileThatHasComeIsWaitedFor(t *testing.T) {
	var posts atomic.Int64
	out, err := sendTo(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		switch {
		case r.Method == http.MethodHead:
			w.Header().Set(shared.HeaderOffset, strconv.Itoa(len("a slipway is a ramp\n")))
		case posts.Add(1) < 4:
			w.WriteHeader(http.StatusGatewayTimeout)
		case n > 0:
			t.Errorf("%d bytes come again", n)
		}
	}, nil)
	if err != nil || posts.Load() != 4 {
		t.Errorf("%d requests: %v\n%s", posts.Load(), err, out)
	}
}
