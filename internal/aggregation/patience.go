// Package aggregation bears with an API server that cannot reach the server of an aggregated API just now: while
// that is exchanged, or is too busy to answer the API server's own question whether it is there.
package aggregation

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
)

const (
	// unavailable is what an API server says when it has handed a request on to nobody.
	unavailable = "service unavailable"
	// pause is how many seconds to wait before a request is sent again. A client of client-go does so ten times.
	pause = 1
)

// Bear makes clients of config send a request again, for some ten seconds, when the API server handed it on to
// nobody. One that reached a server, and may have been carried out, is not sent again.
func Bear(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patience{next} })
}

// patience is a transport that says after how long a request is to be sent again, where the API server does not.
type patience struct{ next http.RoundTripper }

// RoundTrip sends a request once.
func (p patience) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := p.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") != "" ||
		!strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain") {
		return response, err //nolint:wrapcheck // it is the transport's
	}
	head := make([]byte, len(unavailable)+len("\n")+1)
	n, _ := io.ReadFull(response.Body, head) // who reads the body is told of what fails
	response.Body = body{Reader: io.MultiReader(bytes.NewReader(head[:n]), response.Body), Closer: response.Body}
	if strings.TrimSpace(string(head[:n])) == unavailable {
		response.Header.Set("Retry-After", strconv.Itoa(pause))
	}
	return response, nil
}

// WrappedRoundTripper is what client-go looks at the connection through.
func (p patience) WrappedRoundTripper() http.RoundTripper { return p.next }

// body is an answer's body of which some was read.
type body struct {
	io.Reader
	io.Closer
}
