// Package proxy is what importers and those who poll for images have in common where a proxy leads to the servers:
// its address, its certificate, and what it did to a request.
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
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
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// Dial connects, as that of net.Dialer.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Checked returns what connects by TLS with config, by which nobody's certificate is checked, to servers; but to the
// proxies, as host:port, with their certificates checked: what a source is trusted with is not the proxy's, which gets
// a password that is not the source's.
func Checked(dial Dial, config *tls.Config, proxies ...string) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		own := config.Clone()
		own.InsecureSkipVerify = !slices.Contains(proxies, address)
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

// Refusal returns the status with which a proxy answered the wish to be led to a server; 0 when err, an HTTP
// client's, is something else. The client hands down no more of such an answer than its text.
func Refusal(err error) int {
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
