package metric

import (
	"crypto/tls"

	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-vm/slipway/internal/tlspolicy"
)

// Server is how /metrics is served at address, as the field does: to everybody in the cluster,
// with TLS as policy says, which may be nil, by a certificate that the program makes for itself. "0" serves nothing. Who has a
// certificate is asked to show it, for what else is served there, and needs none for metrics.
func Server(address string, policy *tlspolicy.Policy) metricsserver.Options {
	nameQueues()
	return metricsserver.Options{
		BindAddress: address, SecureServing: true,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.NextProtos = []string{"h2", "http/1.1"} // some who scrape speak only the latter
			c.ClientAuth = tls.RequestClientCert
			policy.Guard(c)
		}},
	}
}
