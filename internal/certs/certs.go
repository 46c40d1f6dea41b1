// Package certs makes the certificates with which virt-api serves, keeps them in a
// Secret that all its replicas share, and renews them long before they end. A new
// certificate authority is announced beside the old one, so that nobody who trusts
// only one of them is turned away while the news spreads.
package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Keys of the Secret.
const (
	KeyBundle = "ca.crt" // authorities to trust, the current one first
	KeyCAKey  = "ca.key"
	KeyCert   = "tls.crt"
	KeyKey    = "tls.key"
)

// Lifetimes are how long certificates are valid, and how long before their end they are renewed.
type Lifetimes struct {
	CA, CARenewBefore           time.Duration
	Serving, ServingRenewBefore time.Duration
}

// DefaultLifetimes are as short as the field's, so that rotation happens every day, not
// first when everybody has forgotten it: an authority of a week renewed half way, a
// serving certificate of a day renewed half way.
func DefaultLifetimes() Lifetimes {
	return Lifetimes{CA: 7 * 24 * time.Hour, CARenewBefore: 84 * time.Hour, Serving: 24 * time.Hour, ServingRenewBefore: 12 * time.Hour}
}

// skew is by how much a certificate is valid before now, for clocks that differ.
const skew = 5 * time.Minute

// Renew returns what the Secret's data should be at now for a server at hosts, whether
// that differs from data, and when to look again. Data that cannot be read is replaced.
func Renew(data map[string][]byte, hosts []string, lifetimes Lifetimes, now time.Time) (renewed map[string][]byte, changed bool, next time.Time, err error) {
	return renewFor(data, leaf{hosts, x509.ExtKeyUsageServerAuth}, lifetimes, now)
}

// RenewClient is Renew for a client called name instead of a server.
func RenewClient(data map[string][]byte, name string, lifetimes Lifetimes, now time.Time) (renewed map[string][]byte, changed bool, next time.Time, err error) {
	return renewFor(data, leaf{[]string{name}, x509.ExtKeyUsageClientAuth}, lifetimes, now)
}

// leaf is what a certificate that is no authority is for.
type leaf struct {
	names []string
	usage x509.ExtKeyUsage
}

func renewFor(data map[string][]byte, wanted leaf, lifetimes Lifetimes, now time.Time) (renewed map[string][]byte, changed bool, next time.Time, err error) {
	current := parse(data)
	signer := current.authority
	if current.authority == nil || due(current.authority, lifetimes.CA, lifetimes.CARenewBefore, now) {
		// What serves is signed by the old authority, as long as that lasts, until the next
		// renewal: by then everybody has heard of the new one.
		if current.authority, err = newAuthority(lifetimes.CA, now); err != nil {
			return nil, false, time.Time{}, err
		}
		current.trusted = append([]*x509.Certificate{current.authority.cert}, current.trusted...)
		changed = true
	}
	if signer == nil || !now.Add(lifetimes.Serving).Before(signer.cert.NotAfter) {
		signer = current.authority
	}
	if !current.serves(wanted.names, now.Add(lifetimes.ServingRenewBefore)) || due(current.serving, lifetimes.Serving, lifetimes.ServingRenewBefore, now) {
		if current.serving, err = signer.issue(wanted, lifetimes.Serving, now); err != nil {
			return nil, false, time.Time{}, err
		}
		changed = true
	}
	valid := slices.DeleteFunc(slices.Clone(current.trusted), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
	changed = changed || len(valid) != len(current.trusted)
	current.trusted = valid
	next = earliest(current.authority.cert.NotAfter.Add(-lifetimes.CARenewBefore), current.serving.cert.NotAfter.Add(-lifetimes.ServingRenewBefore))
	if !changed {
		return data, false, next, nil
	}
	renewed, err = current.encode()
	return renewed, true, next, err
}

// due says whether p is to be renewed: before its end, and when it would last longer than certificates shall by now.
func due(p *pair, lifetime, before time.Duration, now time.Time) bool {
	return !now.Before(p.cert.NotAfter.Add(-before)) || p.cert.NotAfter.After(now.Add(lifetime))
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// set is what the Secret holds.
type set struct {
	trusted   []*x509.Certificate
	authority *pair
	serving   *pair
}

// parse reads data; what cannot be read is left nil, to be made anew.
func parse(data map[string][]byte) set {
	var s set
	for rest := data[KeyBundle]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			s.trusted = append(s.trusted, cert)
		}
	}
	if len(s.trusted) > 0 {
		s.authority = withKey(s.trusted[0], data[KeyCAKey])
	}
	if block, _ := pem.Decode(data[KeyCert]); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			s.serving = withKey(cert, data[KeyKey])
		}
	}
	return s
}

// withKey returns cert with the key in data, or nil when that is not its key.
func withKey(cert *x509.Certificate, data []byte) *pair {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil || !key.PublicKey.Equal(cert.PublicKey) {
		return nil
	}
	return &pair{cert: cert, key: key}
}

// serves says whether the serving certificate is good for hosts until at, and trusted.
func (s set) serves(hosts []string, at time.Time) bool {
	if s.serving == nil || !at.Before(s.serving.cert.NotAfter) {
		return false
	}
	for _, host := range hosts {
		if s.serving.cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return slices.ContainsFunc(s.trusted, func(authority *x509.Certificate) bool {
		return at.Before(authority.NotAfter) && s.serving.cert.CheckSignatureFrom(authority) == nil
	})
}

func (s set) encode() (map[string][]byte, error) {
	var bundle bytes.Buffer
	for _, cert := range s.trusted {
		bundle.Write(encodeCert(cert))
	}
	caKey, err := encodeKey(s.authority.key)
	if err != nil {
		return nil, err
	}
	key, err := encodeKey(s.serving.key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{KeyBundle: bundle.Bytes(), KeyCAKey: caKey, KeyCert: encodeCert(s.serving.cert), KeyKey: key}, nil
}

func encodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func newAuthority(lifetime time.Duration, now time.Time) (*pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("virt-api@%d", now.Unix())},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	return sign(template, nil)
}

func (p *pair) issue(wanted leaf, lifetime time.Duration, now time.Time) (*pair, error) {
	if len(wanted.names) == 0 {
		return nil, errors.New("making a certificate: no name to be known by")
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName(wanted.names[0])},
		DNSNames:    wanted.names,
		NotBefore:   now.Add(-skew),
		NotAfter:    earliest(now.Add(lifetime), p.cert.NotAfter),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{wanted.usage},
	}
	return sign(template, p)
}

// commonName is name as far as it fits into that field, of which clients look at the whole names beside it.
func commonName(name string) string {
	const longest = 64 // RFC 5280
	return name[:min(len(name), longest)]
}

// Issued is a certificate for one more server of an authority.
type Issued struct {
	// Cert and Key are the certificate and its key, Bundle whom to trust of the authority's clients; PEM.
	Cert, Key, Bundle []byte
	// Authority tells the authorities apart.
	Authority string
}

// Issue makes a certificate for a server at hosts, by the current authority in the Secret's data. It
// is good for as long as that is.
func Issue(data map[string][]byte, hosts []string, now time.Time) (Issued, error) {
	authority := parse(data).authority
	if authority == nil {
		return Issued{}, errors.New("issuing a certificate: the Secret has no authority")
	}
	one, err := authority.issue(leaf{hosts, x509.ExtKeyUsageServerAuth}, authority.cert.NotAfter.Sub(now), now)
	if err != nil {
		return Issued{}, err
	}
	key, err := encodeKey(one.key)
	if err != nil {
		return Issued{}, err
	}
	return Issued{Cert: encodeCert(one.cert), Key: key, Bundle: data[KeyBundle], Authority: Authority(data)}, nil
}

// IssueClient makes a certificate for a client called name, by the current authority in the Secret's data, good from now for lifetime.
// It is kept nowhere.
func IssueClient(data map[string][]byte, name string, lifetime time.Duration, now time.Time) (tls.Certificate, error) {
	authority := parse(data).authority
	if authority == nil {
		return tls.Certificate{}, errors.New("issuing a certificate: the Secret has no authority")
	}
	one, err := authority.issue(leaf{[]string{name}, x509.ExtKeyUsageClientAuth}, lifetime, now)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{one.cert.Raw}, PrivateKey: one.key}, nil
}

// Authority names the current authority in the Secret's data; empty when there is none.
func Authority(data map[string][]byte) string {
	authority := parse(data).authority
	if authority == nil {
		return ""
	}
	return authority.cert.SerialNumber.Text(16)
}

// sign makes a key and a certificate of template for it, signed by signer, or by itself.
func sign(template *x509.Certificate, signer *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a private key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	if signer == nil {
		signer = &pair{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		return nil, fmt.Errorf("signing certificate %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading certificate %s: %w", template.Subject.CommonName, err)
	}
	return &pair{cert: cert, key: key}, nil
}
