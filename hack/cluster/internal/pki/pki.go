// Package pki makes the cluster's certificates, keys and kubeconfigs.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime of every certificate: the cluster is thrown away long before.
const lifetime = 10 * 365 * 24 * time.Hour

// renewBefore is how long before its end a certificate is made anew.
const renewBefore = 30 * 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf describes a certificate to be signed.
type Leaf struct {
	// File is the file name without its ending.
	File string
	// Name is the common name: the user, or the server.
	Name string
	// Groups are the organizations: the user's groups.
	Groups []string
	// IPs and Hosts are a server's addresses; without any it is a client's certificate only.
	IPs []string
	// Hosts are a server's names.
	Hosts []string
}

// Dir is a folder of certificates (NAME.crt) and keys (NAME.key).
type Dir string

// Path returns the path of a file in the folder.
func (d Dir) Path(file string) string { return filepath.Join(string(d), file) }

// Authority returns the authority kept under a name, and makes it when it is missing.
func (d Dir) Authority(name string) (*Authority, error) {
	cert, key, err := d.read(name)
	if err == nil && time.Until(cert.NotAfter) > renewBefore {
		return &Authority{cert: cert, key: key}, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: "slipway-" + name})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if err := d.sign(name, template, nil); err != nil {
		return nil, err
	}
	cert, key, err = d.read(name)
	if err != nil {
		return nil, err
	}
	return &Authority{cert: cert, key: key}, nil
}

// Leaf makes a certificate signed by the authority unless a good one is there.
func (d Dir) Leaf(ca *Authority, leaf Leaf) error {
	have, _, err := d.read(leaf.File)
	if err == nil && time.Until(have.NotAfter) > renewBefore && have.CheckSignatureFrom(ca.cert) == nil && leaf.covers(have) {
		return nil
	}
	template, err := newTemplate(pkix.Name{CommonName: leaf.Name, Organization: leaf.Groups})
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(leaf.IPs)+len(leaf.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	template.DNSNames = leaf.Hosts
	for _, ip := range leaf.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	return d.sign(leaf.File, template, ca)
}

// covers tells whether a certificate is for the same subject and addresses.
func (l Leaf) covers(cert *x509.Certificate) bool {
	if cert.Subject.CommonName != l.Name || fmt.Sprint(cert.Subject.Organization) != fmt.Sprint(l.Groups) {
		return false
	}
	for _, name := range append(append([]string(nil), l.IPs...), l.Hosts...) {
		if cert.VerifyHostname(name) != nil {
			return false
		}
	}
	return true
}

// Key makes a signing key (NAME.key with NAME.pub) unless it is there.
func (d Dir) Key(name string) error {
	if _, err := os.Stat(d.Path(name + ".key")); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the key %s: %w", name, err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("encoding the key %s: %w", name, err)
	}
	if err := d.write(name+".pub", "PUBLIC KEY", public); err != nil {
		return err
	}
	return d.writeKey(name, key)
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime)}, nil
}

// sign makes a key and its certificate; with no authority it signs itself.
func (d Dir) sign(name string, template *x509.Certificate, ca *Authority) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the key of %s: %w", name, err)
	}
	if ca == nil {
		ca = &Authority{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return fmt.Errorf("signing the certificate of %s: %w", name, err)
	}
	if err := d.writeKey(name, key); err != nil {
		return err
	}
	return d.write(name+".crt", "CERTIFICATE", der)
}

func (d Dir) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the key of %s: %w", name, err)
	}
	return d.write(name+".key", "EC PRIVATE KEY", der)
}

func (d Dir) write(file, kind string, der []byte) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("making the key folder: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(d.Path(file), text, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return nil
}

func (d Dir) read(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certDER, err := d.readBlock(name + ".crt")
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := d.readBlock(name + ".key")
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificate %s: %w", name, err)
	}
	key, err := x509.ParseECPrivateKey(keyDER)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the key %s: %w", name, err)
	}
	return cert, key, nil
}

func (d Dir) readBlock(file string) ([]byte, error) {
	text, err := os.ReadFile(d.Path(file))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block; remove it and run up again", d.Path(file))
	}
	return block.Bytes, nil
}
