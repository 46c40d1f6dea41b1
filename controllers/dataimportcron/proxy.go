package dataimportcron

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/proxy"
)

// way is how a source is reached.
func (s *sources) way(ctx context.Context) (cdiconfig.ImportProxy, error) {
	if s.proxy == nil {
		return cdiconfig.ImportProxy{}, nil
	}
	set, err := s.proxy(ctx)
	if err == nil {
		err = set.Fault
	}
	return set, err
}

// choose returns which proxy leads to the address of a request. What must not be asked directly is not asked by a
// proxy either, as far as an address shows it: names are the proxy's to look up.
func (s *sources) choose(set cdiconfig.ImportProxy) func(*http.Request) (*url.URL, error) {
	return func(request *http.Request) (*url.URL, error) {
		by, err := set.For(request.URL)
		if by != nil && !s.mayAsk(request.URL.Hostname()) {
			return nil, errAddress
		}
		return by, err
	}
}

// mayAsk reports whether host may be asked, unless it is a name.
func (s *sources) mayAsk(host string) bool {
	address, err := netip.ParseAddr(host)
	return err != nil || s.allowed(address)
}

// connect returns what connects to addresses that are allowed, and to the proxies, which the administrator chose.
func (s *sources) connect(by cdiconfig.ImportProxy) func(context.Context, string, string) (net.Conn, error) {
	free := &net.Dialer{Timeout: pollBound / 2}
	guarded := &net.Dialer{Timeout: pollBound / 2, Control: func(_, address string, _ syscall.RawConn) error { return s.check(address) }}
	proxies := by.Addresses()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if slices.Contains(proxies, address) {
			return free.DialContext(ctx, network, address) //nolint:wrapcheck // reached words it
		}
		return guarded.DialContext(ctx, network, address) //nolint:wrapcheck // likewise
	}
}

// toRegistry returns the proxy that leads to a registry, nil for none; an error where the registry may not be asked.
// The library takes one proxy for all that it asks for an image: for servers of tokens, and for registries that have
// no TLS, too. These are asked by the proxy of http where there is none of https.
func (s *sources) toRegistry(ctx context.Context, host string, insecure bool, set cdiconfig.ImportProxy) (*url.URL, error) {
	by, err := set.For(&url.URL{Scheme: "https", Host: host})
	if err == nil && by == nil && insecure {
		by, err = set.For(&url.URL{Scheme: "http", Host: host})
	}
	switch {
	case err != nil:
		return nil, err
	case by == nil:
		return nil, s.checkHost(ctx, host)
	case !s.mayAsk((&url.URL{Host: host}).Hostname()):
		return nil, errAddress
	}
	return by, nil
}

// proxyFailure is what the proxy on the way to a server did; nil when err is of something else.
func proxyFailure(err error) error {
	if cause := proxy.Unreached(err); cause != nil {
		return fmt.Errorf("the proxy of imports is not reached: %w", unreached(cause))
	}
	if status := proxy.Refusal(err); status != 0 {
		return fmt.Errorf("the proxy of imports answers %d %s", status, http.StatusText(status))
	}
	return nil
}

// errProxyLogin is the answer of a proxy that wants another user or password.
var errProxyLogin = errors.New("the proxy of imports wants another user or password; correct them in importProxy of the CDI object")
