package profiler

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// ClientName is the name in the certificate by which virt-api is known.
const ClientName = "virt-api-profiler"

// fresh is how long the authorities are known before they are read again: whatever strangers show, the API server is asked
// no more often.
const fresh = 5 * time.Second

// Guard lets virt-api in while the profiler is on, and nobody else ever.
type Guard struct {
	// Authorities reads the certificates, in PEM, of who signs virt-api's.
	Authorities func(context.Context) ([]byte, error)
	// On says whether the profiler is on.
	On func(context.Context) (bool, error)

	mu    sync.Mutex
	roots *x509.CertPool
	read  time.Time
}

// admit says why a request is refused by who wants to do what.
func (g *Guard) admit(r *http.Request, what string) error {
	if err := g.verify(r); err != nil {
		return err
	}
	on, err := g.On(r.Context())
	if err != nil {
		return err
	}
	if !on {
		return &refusal{http.StatusForbidden, Off(what)}
	}
	return nil
}

func (g *Guard) verify(r *http.Request) error {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return &refusal{http.StatusUnauthorized, "the profiler takes requests of virt-api only, which shows its certificate"}
	}
	shown := r.TLS.PeerCertificates[0]
	if err := shown.VerifyHostname(ClientName); err != nil {
		return &refusal{http.StatusForbidden, "the certificate is not that of virt-api"}
	}
	roots, err := g.known(r.Context())
	if err != nil {
		return err
	}
	if _, err := shown.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return &refusal{http.StatusForbidden, fmt.Sprintf("the certificate is not that of virt-api: %v", err)}
	}
	return nil
}

// known are the authorities as they were a moment ago.
func (g *Guard) known(ctx context.Context) (*x509.CertPool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.roots != nil && time.Since(g.read) < fresh {
		return g.roots, nil
	}
	bundle, err := g.Authorities(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding out whom to trust: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, errors.New("finding out whom to trust: virt-api has told no authority yet; try again in a moment")
	}
	g.roots, g.read = roots, time.Now()
	return roots, nil
}
