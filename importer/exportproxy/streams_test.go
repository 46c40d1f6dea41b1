package exportproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// A volume of which only a part came must never look whole.
func TestAnAnswerThatBreaksOffIsCut(t *testing.T) {
	for sentence, length := range map[string]string{"of unknown length": "", "of known length": "3000000"} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				_, _ = w.Write(make([]byte, 1<<20))
				if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
					_ = conn.Close()
				}
			}))
			if response, body, err := s.ask("GET", at+"/volumes/root/disk.img.gz"); err == nil {
				t.Errorf("%s, %d bytes, as if that were all", response.Status, len(body))
			}
		})
	}
}

// By HTTP/1.0 the end of the connection is all that ends an answer whose length is not told.
func TestAClientThatSeesNoBreakGetsNothingThatMayBreak(t *testing.T) {
	s := newStage(t, nil)
	for path, want := range map[string]string{
		"/volumes/root/disk.img": "200 OK", "/volumes/root/disk.img.gz": "505 HTTP Version Not Supported",
	} {
		conn, err := (&tls.Dialer{Config: s.front.Client().Transport.(*http.Transport).TLSClientConfig}).DialContext(t.Context(), "tcp", s.front.Listener.Addr().String())
		s.must(err)
		_, err = fmt.Fprintf(conn, "GET %s%s HTTP/1.0\r\nHost: example.com\r\n%s: %s\r\n\r\n", at, path, vmexport.Token, token)
		s.must(err)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		s.must(err)
		body, err := io.ReadAll(response.Body)
		if response.Status != want || err != nil || response.StatusCode == http.StatusOK && len(body) != len(s.disk) {
			t.Errorf("%s: %s, %d bytes, %v", path, response.Status, len(body), err)
		}
		_ = conn.Close()
	}
}

// What goes through is never held, however large it is.
func TestALargeVolumeGoesThroughWithLittleMemory(t *testing.T) {
	const size, most = 256 << 20, 16 << 20
	block := make([]byte, 1<<20)
	s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range size / len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.front.URL+at+"/volumes/root/disk.img.gz", http.NoBody)
	s.must(err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	response, err := s.front.Client().Do(request)
	s.must(err)
	defer response.Body.Close()
	came, err := io.Copy(io.Discard, response.Body)
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; err != nil || came != size || taken > most {
		t.Errorf("%v: %d bytes came, %d were taken in memory, of which %d are allowed", err, came, taken, most)
	}
}

// A client that goes ends what goes on for it.
func TestAClientThatGoesIsNotServedOn(t *testing.T) {
	ended := make(chan struct{})
	s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	}))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.front.URL+at+"/volumes/root/disk.img.gz", http.NoBody)
	s.must(err)
	response, err := s.front.Client().Do(request)
	s.must(err)
	defer response.Body.Close()
	_, err = io.ReadFull(response.Body, make([]byte, 1<<20)) // it comes before the answer has ended
	s.must(err)
	leave()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the export's server still serves after a minute")
	}
}

// Exports of one name in two namespaces have nothing of one another, whatever the cluster's DNS says.
func TestExportsOfTheSameNameAreApart(t *testing.T) {
	serve := func(namespace string) (place, authority string) {
		t.Helper()
		issued, err := certs.Alone([]string{vmexport.Host(namespace, "web")}, time.Hour, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(issued.Cert, issued.Key)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "of "+namespace+", asked at "+r.Host+" with "+r.Header.Get(vmexport.Token))
		}))
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String(), string(issued.Bundle)
	}
	s := newStage(t, nil)
	places := map[string]string{}
	for _, namespace := range []string{"shop", "bank"} {
		place, authority := serve(namespace)
		places[vmexport.Host(namespace, "web")+":443"] = place
		s.exports.known[client.ObjectKey{Namespace: namespace, Name: "web"}] = ready(authority)
	}
	s.front.Config.Handler = &Proxy{Exports: &s.exports, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, places[address])
	}}
	for namespace, other := range map[string]string{"shop": "bank", "bank": "shop"} {
		path := strings.Replace(at, "/shop/", "/"+namespace+"/", 1) + "/volumes/root/disk.img"
		if response, body, _ := s.ask("GET", path); string(body) != "of "+namespace+", asked at virt-export-web."+namespace+".svc with "+token {
			t.Errorf("%s: %s %s", namespace, response.Status, body)
		}
		mine, others := vmexport.Host(namespace, "web")+":443", vmexport.Host(other, "web")+":443"
		places[mine], places[others] = places[others], places[mine]
		if response, body, _ := s.ask("GET", path); response.StatusCode != http.StatusBadGateway || strings.Contains(string(body), token) {
			t.Errorf("%s, where %s answers: %s %s", namespace, other, response.Status, body)
		}
		places[mine], places[others] = places[others], places[mine]
	}
}
