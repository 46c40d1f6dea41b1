package metric

import (
	"crypto/tls"

	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Server is how /metrics is served at address, as the field does: to everybody in the cluster,
// with TLS by a certificate that the program makes for itself. "0" serves nothing.
func Server(address string) metricsserver.Options {
	nameQueues()
	return metricsserver.Options{
		BindAddress: address, SecureServing: true,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion, c.NextProtos = tls.VersionTLS12, []string{"h2", "http/1.1"} // some who scrape speak only the latter
		}},
	}
}
