package dataimportcron

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/proxy"
)

// way is how the servers of a template are reached: by which proxies, and whom to trust, of proxies and of servers;
// nil: whom the system trusts.
type way struct {
	by               cdiconfig.ImportProxy
	proxies, servers *x509.CertPool
}

// way returns how servers are reached. Beside whom the system trusts, the authorities that the administrator names are
// trusted, and for servers those in a ConfigMap of namespace where one is named.
func (s *sources) way(ctx context.Context, namespace, certConfigMap string) (way, error) {
	var by cdiconfig.ImportProxy
	if s.proxy != nil {
		var err error
		if by, err = s.proxy(ctx); err != nil {
			return way{}, err
		}
	}
	if by.Fault != nil {
		return way{}, by.Fault
	}
	if certConfigMap == "" && len(by.Authorities) == 0 {
		return way{by: by}, nil
	}
	proxies, err := x509.SystemCertPool()
	if err != nil {
		proxies = x509.NewCertPool() // an image without authorities of its own
	}
	proxies.AppendCertsFromPEM(by.Authorities)
	servers := proxies.Clone()
	if certConfigMap != "" {
		certificates, err := s.authorities(ctx, namespace, certConfigMap)
		if err != nil {
			return way{}, err
		}
		for _, pem := range certificates {
			servers.AppendCertsFromPEM([]byte(pem))
		}
	}
	return way{by, proxies, servers}, nil
}

// authorities returns the certificates in a ConfigMap, by its keys.
func (s *sources) authorities(ctx context.Context, namespace, name string) (map[string]string, error) {
	certificates, err := get(ctx, s.live, types.NamespacedName{Namespace: namespace, Name: name}, &corev1.ConfigMap{})
	if err != nil {
		return nil, err
	}
	if certificates == nil {
		return nil, fmt.Errorf("ConfigMap %s, which certConfigMap names, does not exist; create it", name)
	}
	return certificates.Data, nil
}

// transport connects to the proxies of a way, and without them to addresses that are allowed, whoever names them.
// An insecure one takes any server's certificate.
func (s *sources) transport(way way, insecure bool) *http.Transport {
	transport := &http.Transport{
		Proxy: s.choose(way.by), OnProxyConnectResponse: proxy.Answered, DialContext: s.connect(way.by), ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: s.patience() / 2, ResponseHeaderTimeout: s.patience(), IdleConnTimeout: time.Second, MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: way.servers, InsecureSkipVerify: insecure, //nolint:gosec // as the import itself is asked to, or the registry is listed
		},
	}
	transport.DialTLSContext = proxy.Checked(transport.DialContext, transport.TLSClientConfig, way.proxies, way.by.Addresses()...)
	return transport
}

// connect returns what connects to addresses that are allowed, and to the proxies, which the administrator chose.
func (s *sources) connect(by cdiconfig.ImportProxy) func(context.Context, string, string) (net.Conn, error) {
	free := &net.Dialer{Timeout: s.patience() / 2}
	guarded := &net.Dialer{Timeout: s.patience() / 2, Control: func(_, address string, _ syscall.RawConn) error { return s.check(address) }}
	proxies := by.Addresses()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if slices.Contains(proxies, address) {
			return free.DialContext(ctx, network, address) //nolint:wrapcheck // reached words it
		}
		return guarded.DialContext(ctx, network, address) //nolint:wrapcheck // likewise
	}
}

// check refuses an address, as host:port, that is not allowed.
func (s *sources) check(address string) error {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("reading the server's address: %w", err)
	}
	if !s.allowed(parsed.Addr()) {
		return errAddress
	}
	return nil
}
