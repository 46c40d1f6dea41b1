package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// classify gives an error of the HTTP client its reason. What the network does may pass; a
// wrong certificate, a redirect loop and a name that does not exist do not pass by themselves.
func (h *HTTP) classify(err error) error {
	if typed, ok := errors.AsType[*transfer.Error](err); ok {
		return typed
	}
	if errors.Is(err, context.Canceled) {
		return transfer.Errorf(transfer.ConnectionLost, "reading %s was cut off: %w", h.Name(), err)
	}
	if failed := byProxy(h.Name(), err); failed != nil {
		return failed
	}
	if isTLS(err) {
		return transfer.Errorf(transfer.TLSFailure,
			"TLS with %s fails: %w; give its certificate authority in certConfigMap, or correct the URL", h.Name(), err)
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return transfer.Errorf(transfer.ConnectionLost, "the host of %s is not known: %w; check the URL", h.Name(), err)
	}
	return &temporary{transfer.Errorf(transfer.ConnectionLost, "the connection to %s fails: %w", h.Name(), err)}
}

func isTLS(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &alert) ||
		errors.As(err, &authority) || errors.As(err, &hostname) || errors.As(err, &invalid)
}
