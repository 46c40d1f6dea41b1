package dataimportcron

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/proxy"
)

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

// mayAsk reports whether host may be asked, unless it is a name. Numbers that are no address to us, such as 127.1, may
// be one to a proxy, and no name ends in a number.
func (s *sources) mayAsk(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if address, err := netip.ParseAddr(host); err == nil {
		return s.allowed(address)
	}
	last := strings.ToLower(host[strings.LastIndex(host, ".")+1:])
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
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
