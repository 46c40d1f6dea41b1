// Package proxy is what importers and those who poll for images have in common where a proxy leads to the servers:
// its address, its certificate, and what it did to a request.
package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/idna"
)

// Variables of an environment that name proxies, as HTTP clients read them.
const (
	EnvHTTP  = "http_proxy"
	EnvHTTPS = "https_proxy"
	EnvNone  = "no_proxy"
)

// handshakeBound is how long a TLS handshake may take.
const handshakeBound = 30 * time.Second

// Parse reads the address of a proxy; without a scheme it is one of http. The error is none to show, for it may have
// the password.
func Parse(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	return url.Parse(text) //nolint:wrapcheck // nobody sees it
}

// HostPort is where a proxy listens, as clients connect to it; empty for an address that is none.
func HostPort(text string) string {
	u, err := Parse(text)
	if text == "" || err != nil {
		return ""
	}
	port, host := u.Port(), u.Hostname()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	if ascii, err := idna.Lookup.ToASCII(host); err == nil && strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		host = ascii // as the HTTP client writes it
	}
	return net.JoinHostPort(host, port)
}

// Dial connects, as that of net.Dialer.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Checked returns what connects by TLS with config to servers; but to the proxies, as host:port, with their
// certificates checked by the authorities in trusted, nil for the system's: what a source is trusted with is not the
// proxy's, which gets a password that is not the source's.
func Checked(dial Dial, config *tls.Config, trusted *x509.CertPool, proxies ...string) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		own := config.Clone()
		if slices.Contains(proxies, address) {
			own.InsecureSkipVerify, own.RootCAs = false, trusted
			own.NextProtos = nil // what proxies are asked is HTTP/1
		}
		if own.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return nil, errors.Join(fmt.Errorf("reading the server's address: %w", err), plain.Close())
		}
		ctx, stop := context.WithTimeout(ctx, handshakeBound)
		defer stop()
		secured := tls.Client(plain, own)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = plain.Close() // of a connection that is of no use
			return nil, err   //nolint:wrapcheck // the HTTP client words it
		}
		return secured, nil
	}
}

// Unreached returns why the proxy on a request's way was not reached, without the proxy's address; nil when err, an
// HTTP client's, is something else.
func Unreached(err error) error {
	if broken, ok := errors.AsType[*net.OpError](err); ok && broken.Op == "proxyconnect" {
		return broken.Err
	}
	return nil
}

// RefusedError is a proxy's answer to the wish to be led to a server.
type RefusedError struct{ Status int }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the proxy answers %d %s", e.Status, http.StatusText(e.Status))
}

// Answered is for OnProxyConnectResponse of an http.Transport: with it Refusal knows a proxy's answer whatever the
// words of it are.
func Answered(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &RefusedError{answer.StatusCode}
}

// Refusal returns the status with which a proxy answered the wish to be led to a server; 0 when err, an HTTP
// client's, is something else. A client without Answered hands down no more of such an answer than its text.
func Refusal(err error) int {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Status
	}
	request, ok := errors.AsType[*url.Error](err)
	if !ok {
		return 0
	}
	for status := http.StatusBadRequest; status < 600; status++ {
		if text := http.StatusText(status); text != "" && request.Err.Error() == text {
			return status
		}
	}
	return 0
}
