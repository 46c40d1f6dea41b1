package certs

import (
	"crypto/x509"
	"time"
)

// Alone makes an authority that has signed one certificate, for a server at hosts, and can sign no
// other: its key is forgotten. Both are good from now for lifetime. It is for a server that lives no
// longer, and whose clients are told the authority by name.
func Alone(hosts []string, lifetime time.Duration, now time.Time) (Issued, error) {
	authority, err := newAuthority(lifetime, now)
	if err != nil {
		return Issued{}, err
	}
	one, err := authority.issue(leaf{hosts, x509.ExtKeyUsageServerAuth}, lifetime, now)
	if err != nil {
		return Issued{}, err
	}
	key, err := encodeKey(one.key)
	if err != nil {
		return Issued{}, err
	}
	return Issued{
		Cert: encodeCert(one.cert), Key: key, Bundle: encodeCert(authority.cert), Authority: authority.cert.SerialNumber.Text(16),
	}, nil
}
