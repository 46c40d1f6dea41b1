package source

import (
	"net/http"

	"golang.org/x/net/http/httpproxy"

	"github.com/slipway-vm/slipway/internal/proxy"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// whoseProxy is where the proxy of imports is set, for messages.
const whoseProxy = "importProxy of the CDI object, which the administrator sets"

// byProxy gives what the proxy did to a request for name its reason; nil when err is of something else.
func byProxy(name string, err error) error {
	if cause := proxy.Unreached(err); cause != nil {
		if isTLS(cause) {
			return transfer.Errorf(transfer.TLSFailure, "TLS with the proxy on the way to %s fails: %w; look at trustedCAProxy in %s", name, cause, whoseProxy)
		}
		return &temporary{transfer.Errorf(transfer.ConnectionLost, "the proxy on the way to %s is not reached: %w; look at %s", name, cause, whoseProxy)}
	}
	switch status := proxy.Refusal(err); {
	case status == 0:
		return nil
	case status >= http.StatusInternalServerError:
		return &temporary{transfer.Errorf(transfer.SourceFailed, "the proxy on the way to %s answers %d %s; check the URL, and the proxy's log", name, status, http.StatusText(status))}
	default:
		return refusedByProxy(name, status)
	}
}

// refusedByProxy is the error of a proxy that lets us not through to name.
func refusedByProxy(name string, status int) error {
	return transfer.Errorf(transfer.Unauthorized, "the proxy on the way to %s answers %d %s; look at user and password in %s, and at what the proxy allows",
		name, status, http.StatusText(status), whoseProxy)
}

// proxies are those that the environment names, as host:port.
func proxies() []string {
	set := httpproxy.FromEnvironment()
	return []string{proxy.HostPort(set.HTTPProxy), proxy.HostPort(set.HTTPSProxy)}
}
