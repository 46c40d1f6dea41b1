// Package source reads the files that disks are made from. An HTTP source is read by
// ranges, in parallel and anew after a broken connection, where its server can do that,
// and as a plain stream where it cannot.
package source

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-vm/slipway/internal/proxy"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// Options describe an HTTP source.
type Options struct {
	// URL is http or https.
	URL string
	// Username and Password are sent as basic authentication to the URL's own host.
	Username, Password string
	// Headers are sent as given ("Name: value"); SecretHeaders to the URL's own host only.
	Headers, SecretHeaders []string
	// Signer proves to the URL's own host who asks; it may be nil. With one, redirects are not followed.
	Signer Signer
	// CertDir holds PEM files of further certificate authorities, ProxyCertDir those of the proxy that the
	// environment names. Both empty: the system's alone.
	CertDir, ProxyCertDir string
	// SkipVerify takes any certificate.
	SkipVerify bool
	// BytesPerSecond is how much comes at most from the server, by all connections; 0 is no limit.
	BytesPerSecond int64
	// IdleTimeout is how long the server may send nothing before the connection counts as
	// broken. Default 60 s.
	IdleTimeout time.Duration
	// RetryFor is how long a broken read is tried again, counted from its last byte. Default 2 min.
	RetryFor time.Duration
}

// Signer adds to a request what proves who asks. Requests may be signed at the same time.
type Signer interface {
	// Sign is called for each request anew, when its URL and range are set. An error that is no
	// transfer.Error is one of the network; the request is tried again.
	Sign(request *http.Request) error
}

// maxRedirects is how far redirects are followed.
const maxRedirects = 10

// HTTP is a file on a server.
type HTTP struct {
	options Options
	client  *http.Client
	headers http.Header // to every host
	secrets http.Header // to the URL's own host
	url     *url.URL

	size      int64 // -1 when the server does not say
	ranged    bool
	validator string // for If-Range; empty when the server gives none
	identity  identity
	version   string         // its name, by imageversion
	first     *http.Response // the answer of a server without ranges, until Stream takes it
	limit     *limit
	counter   counter
}

// Name is the source's address without credentials, for messages.
func (h *HTTP) Name() string { return h.url.Redacted() }

// Size is the file's size in bytes, or -1 when the server does not say.
func (h *HTTP) Size() int64 { return h.size }

// Ranged reports whether the file can be read at any offset.
func (h *HTTP) Ranged() bool { return h.ranged }

// Downloaded is how many bytes came from the server so far.
func (h *HTTP) Downloaded() int64 { return h.counter.Load() }

func newHTTP(options Options) (*HTTP, error) {
	address, err := url.Parse(options.URL)
	if err != nil {
		return nil, transfer.Errorf(transfer.BadRequest, "the URL cannot be read: %w", err)
	}
	if address.Scheme != "http" && address.Scheme != "https" || address.Host == "" {
		return nil, transfer.Errorf(transfer.BadRequest, "the URL %q is not an http or https address", address.Redacted())
	}
	options = withDefaults(options)
	h := &HTTP{options: options, url: address, size: -1, limit: newLimit(options.BytesPerSecond)}
	if h.headers, err = parseHeaders(options.Headers); err != nil {
		return nil, err
	}
	if h.secrets, err = parseHeaders(options.SecretHeaders); err != nil {
		return nil, err
	}
	roots, err := certificates(options.CertDir, options.ProxyCertDir)
	if err != nil {
		return nil, err
	}
	ofProxy, err := certificates("", options.ProxyCertDir)
	if err != nil {
		return nil, err
	}
	h.client = &http.Client{Transport: transport(options, roots, ofProxy), CheckRedirect: h.checkRedirect}
	return h, nil
}

func withDefaults(options Options) Options {
	if options.IdleTimeout <= 0 {
		options.IdleTimeout = time.Minute
	}
	if options.RetryFor <= 0 {
		options.RetryFor = 2 * time.Minute
	}
	return options
}

// transport trusts servers by roots, and proxies by ofProxy.
func transport(options Options, roots, ofProxy *x509.CertPool) *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		OnProxyConnectResponse: proxy.Answered,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, InsecureSkipVerify: options.SkipVerify}, //nolint:gosec // the DataVolume's insecureSkipVerify asks for it
		TLSHandshakeTimeout:    30 * time.Second,
		ResponseHeaderTimeout:  options.IdleTimeout,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true,
		// One connection per reader is what makes parallel reading fast; HTTP/2 would share one.
		ForceAttemptHTTP2: false,
		ReadBufferSize:    64 << 10,
	}
	t.DialTLSContext = proxy.Checked(dialer.DialContext, t.TLSClientConfig, ofProxy, proxies()...)
	return t
}

// place is an address as it may be shown: the rest of it may let whoever reads it in.
func place(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// checkRedirect stops circles and long chains, and keeps secrets from other hosts.
func (h *HTTP) checkRedirect(request *http.Request, via []*http.Request) error {
	if h.options.Signer != nil { // what is signed is for one host and one path
		return transfer.Errorf(transfer.BadRequest, "the server redirects to %s; give that bucket's own address as the URL", place(request.URL))
	}
	for _, earlier := range via {
		if earlier.URL.String() == request.URL.String() {
			return transfer.Errorf(transfer.RedirectLoop, "the server redirects in a circle: %s was asked before", place(request.URL))
		}
	}
	if len(via) >= maxRedirects {
		return transfer.Errorf(transfer.RedirectLoop, "the server redirected %d times, at last to %s", len(via), place(request.URL))
	}
	if via[0].URL.Scheme == "https" && request.URL.Scheme == "http" && len(h.secrets)+len(h.options.Username)+len(h.options.Password) > 0 {
		return transfer.Errorf(transfer.BadRequest, "the server redirects from https to %s, which would send credentials in the open", place(request.URL))
	}
	if request.URL.Host != h.url.Host {
		for name := range h.secrets {
			request.Header.Del(name)
		}
		request.Header.Del("Authorization")
	}
	return nil
}

func parseHeaders(lines []string) (http.Header, error) {
	headers := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, transfer.Errorf(transfer.BadRequest, "an extra header has no \"Name: value\"; write it so")
		}
		headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return headers, nil
}

// certificates returns the system's authorities with those in the folders, or nil for the system's alone. In dir
// there must be some.
func certificates(dir, proxyDir string) (*x509.CertPool, error) {
	if dir == "" && proxyDir == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, from := range []string{dir, proxyDir} {
		found := false
		names, err := certificateFiles(from)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("reading a certificate: %w", err)
			}
			found = pool.AppendCertsFromPEM(data) || found
		}
		if !found && from != "" && from == dir {
			return nil, transfer.Errorf(transfer.BadRequest, "the certificate ConfigMap holds no PEM certificate; put the authority's certificate under any key")
		}
	}
	return pool, nil
}

// certificateFiles are the files of a folder, none where there is no folder.
func certificateFiles(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, fmt.Errorf("listing certificates in %s: %w", dir, err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Stat(name)
		return err != nil || info.IsDir()
	}), nil
}
