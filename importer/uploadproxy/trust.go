package uploadproxy

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/importer/proxyserver"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/upload"
)

// Published is what virt-api and virt-controller publish for the proxy, by way of a cache that follows it.
type Published struct {
	// Namespace is that of the installation.
	Namespace string
	Reader    client.Reader
	// Dial connects to a Service; nil does it by the cluster's DNS.
	Dial proxyserver.Dialer

	mu        sync.Mutex
	version   string // of the Secret that transport was made from
	transport *http.Transport
}

// Keys reads by which keys tokens are known.
func (p *Published) Keys(ctx context.Context) ([]*rsa.PublicKey, error) {
	configMap := &corev1.ConfigMap{}
	if err := p.Reader.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: upload.SigningSecret}, configMap); err != nil {
		return nil, fmt.Errorf("reading by which keys tokens are known: %w", err)
	}
	return upload.ParsePublicKeys(configMap.Data[upload.KeyPublic])
}

// Transport reaches upload servers with the current certificate, and trusts those of our authority alone.
func (p *Published) Transport(ctx context.Context) (http.RoundTripper, error) {
	secret := &corev1.Secret{}
	if err := p.Reader.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: upload.ClientSecret}, secret); err != nil {
		return nil, fmt.Errorf("reading the certificate for upload servers: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if version := string(secret.UID) + secret.ResourceVersion; p.version != version {
		fresh, err := p.transportOf(secret.Data)
		if err != nil {
			return nil, err
		}
		p.version, p.transport = version, fresh
	}
	return p.transport, nil
}

// transportOf makes a transport of the Secret's data.
func (p *Published) transportOf(data map[string][]byte) (*http.Transport, error) {
	cert, err := tls.X509KeyPair(data[certs.KeyCert], data[certs.KeyKey])
	if err != nil {
		return nil, fmt.Errorf("reading the certificate for upload servers: %w", err)
	}
	servers := x509.NewCertPool()
	if !servers.AppendCertsFromPEM(data[certs.KeyBundle]) {
		return nil, fmt.Errorf("reading the authorities of upload servers: %s holds no certificate", certs.KeyBundle)
	}
	return proxyserver.Transport(p.Dial, &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: servers, MinVersion: tls.VersionTLS12}), nil
}

func one(name string) fields.Selector {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name)
}

func fromVersion(version string) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: version}
}
