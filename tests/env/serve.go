package env

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"
)

// Serve serves handler to the cluster's pods until ctx ends, and returns the URL of its root.
// It listens on the local node's address, or for an existing cluster on SERVE_ADDRESS.
func (c *Cluster) Serve(ctx context.Context, handler http.Handler) (string, error) {
	listener, err := c.listen(ctx)
	if err != nil {
		return "", err
	}
	serve(ctx, listener, handler)
	return "http://" + listener.Addr().String(), nil
}

// ServeTLS is Serve with a certificate of its own, which it returns as PEM.
func (c *Cluster) ServeTLS(ctx context.Context, handler http.Handler) (root string, certificate []byte, err error) {
	listener, err := c.listen(ctx)
	if err != nil {
		return "", nil, err
	}
	der, key, err := selfSigned(listener.Addr().(*net.TCPAddr).IP)
	if err != nil {
		return "", nil, errors.Join(err, listener.Close())
	}
	serve(ctx, tls.NewListener(listener, &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12,
	}), handler)
	return "https://" + listener.Addr().String(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func (c *Cluster) listen(ctx context.Context) (net.Listener, error) {
	address := c.Local.NodeIP
	if c.Existing {
		address = os.Getenv("SERVE_ADDRESS")
	}
	if address == "" {
		return nil, errors.New("an existing cluster's pods must reach the disk: set SERVE_ADDRESS to an address of this machine that they reach, or IMAGE_URL to a disk elsewhere")
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	return listener, nil
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
}

// selfSigned makes a certificate for an address, which is its own authority, for one day.
func selfSigned(address net.IP) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{address}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key); err != nil {
		return nil, nil, fmt.Errorf("making a certificate for %s: %w", address, err)
	}
	return der, key, nil
}
