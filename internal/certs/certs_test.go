package certs

import (
	"crypto/x509"
	"encoding/pem"
	"maps"
	"testing"
	"time"
)

var (
	start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	hosts = []string{"virt-api.ns.svc", "virt-api.ns.svc.cluster.local"}
)

func renew(t *testing.T, data map[string][]byte, now time.Time) (map[string][]byte, bool, time.Time) {
	t.Helper()
	renewed, changed, next, err := Renew(data, hosts, DefaultLifetimes(), now)
	if err != nil {
		t.Fatal(err)
	}
	return renewed, changed, next
}

// verify checks that the serving certificate in data is trusted by bundle at now.
func verify(t *testing.T, bundle []byte, data map[string][]byte, now time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the bundle holds no certificate")
	}
	block, _ := pem.Decode(data[KeyCert])
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now}); err != nil {
			t.Errorf("%s at %s: %v", host, now, err)
		}
	}
}

func TestAnEmptySecretGetsACertificateThatItsBundleTrusts(t *testing.T) {
	data, changed, next := renew(t, nil, start)
	if !changed {
		t.Fatal("nothing was made")
	}
	verify(t, data[KeyBundle], data, start)
	if want := start.Add(12 * time.Hour); !next.Equal(want) {
		t.Errorf("looks again at %s, want %s", next, want)
	}
	if _, changed, _ := renew(t, data, start.Add(11*time.Hour)); changed {
		t.Error("renewed what is fresh")
	}
}

// In a month of renewals at the times asked for, nothing that trusts the bundle of the
// step before is ever turned away.
func TestRenewalNeverBreaksWhoTrustsTheLastBundle(t *testing.T) {
	data, _, next := renew(t, nil, start)
	authorities := map[string]bool{}
	for now := next; now.Before(start.Add(30 * 24 * time.Hour)); now = next {
		old := maps.Clone(data)
		var changed bool
		data, changed, next = renew(t, data, now)
		if !changed {
			t.Fatalf("nothing was due at %s", now)
		}
		verify(t, old[KeyBundle], old, now)
		verify(t, data[KeyBundle], old, now)
		verify(t, old[KeyBundle], data, now)
		verify(t, data[KeyBundle], data, now)
		authorities[string(data[KeyCAKey])] = true
	}
	if len(authorities) < 6 {
		t.Errorf("%d authorities in 30 days, want one in 84 hours", len(authorities))
	}
	if blocks := countBlocks(data[KeyBundle]); blocks > 3 {
		t.Errorf("the bundle has grown to %d authorities", blocks)
	}
}

func countBlocks(data []byte) int {
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	return n
}

func TestWhatCannotServeIsReplaced(t *testing.T) {
	good, _, _ := renew(t, nil, start)
	other, _, _ := renew(t, nil, start)
	for name, damage := range map[string]func(map[string][]byte){
		"garbage in the bundle":       func(d map[string][]byte) { d[KeyBundle] = []byte("garbage") },
		"a key of another authority":  func(d map[string][]byte) { d[KeyCAKey] = other[KeyCAKey] },
		"another's serving key":       func(d map[string][]byte) { d[KeyKey] = other[KeyKey] },
		"another's certificate":       func(d map[string][]byte) { d[KeyCert], d[KeyKey] = other[KeyCert], other[KeyKey] },
		"no serving certificate left": func(d map[string][]byte) { delete(d, KeyCert) },
	} {
		t.Run(name, func(t *testing.T) {
			data := maps.Clone(good)
			damage(data)
			renewed, changed, _ := renew(t, data, start.Add(time.Minute))
			if !changed {
				t.Fatal("it was kept")
			}
			verify(t, renewed[KeyBundle], renewed, start.Add(time.Minute))
		})
	}
}

func TestAnOffClusterComesBackWithNewCertificates(t *testing.T) {
	data, _, _ := renew(t, nil, start)
	later := start.Add(100 * 24 * time.Hour)
	renewed, changed, next := renew(t, data, later)
	if !changed || !next.After(later) {
		t.Fatalf("changed %v, next %s", changed, next)
	}
	verify(t, renewed[KeyBundle], renewed, later)
	if n := countBlocks(renewed[KeyBundle]); n != 1 {
		t.Errorf("the bundle keeps %d authorities, want the new one alone", n)
	}
}

// A client and the servers of one authority know each other, at the moment and after each renewal
// of the client, for as long as the server's certificate is of an authority that is still trusted.
func TestClientAndServersOfOneAuthorityKnowEachOther(t *testing.T) {
	const name = "client.example"
	data, _, _, err := RenewClient(nil, name, DefaultLifetimes(), start)
	if err != nil {
		t.Fatal(err)
	}
	server, err := Issue(data, hosts, start)
	if err != nil || server.Authority != Authority(data) || server.Authority == "" {
		t.Fatalf("%q: %v", server.Authority, err)
	}
	verify(t, data[KeyBundle], map[string][]byte{KeyCert: server.Cert}, start)
	verify(t, data[KeyBundle], map[string][]byte{KeyCert: server.Cert}, start.Add(83*time.Hour))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(server.Bundle)
	block, _ := pem.Decode(data[KeyCert])
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || cert.Subject.CommonName != name {
		t.Fatalf("%v: %v", cert.Subject, err)
	}
	check := func(usage x509.ExtKeyUsage) error {
		_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err //nolint:wrapcheck // compared with nil
	}
	if err := check(x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
	if check(x509.ExtKeyUsageServerAuth) == nil {
		t.Error("the client's certificate is a server's too")
	}
	renewed, changed, _, err := RenewClient(data, name, DefaultLifetimes(), start.Add(85*time.Hour))
	if err != nil || !changed || Authority(renewed) == server.Authority {
		t.Fatalf("the authority stays for ever: %v", err)
	}
	verify(t, renewed[KeyBundle], map[string][]byte{KeyCert: server.Cert}, start.Add(85*time.Hour))
	if _, err := Issue(nil, hosts, start); err == nil {
		t.Error("issued by nobody")
	}
}

// A server that stands alone is trusted by its own authority until its time is over, and what knows the server's
// Secret can sign for nobody else.
func TestAServerAloneHasAnAuthorityOfItsOwn(t *testing.T) {
	one, err := Alone(hosts, 3*time.Hour, start)
	if err != nil {
		t.Fatal(err)
	}
	data := map[string][]byte{KeyCert: one.Cert, KeyKey: one.Key, KeyBundle: one.Bundle}
	for _, at := range []time.Duration{-time.Minute, 0, 3*time.Hour - time.Second} {
		verify(t, one.Bundle, data, start.Add(at))
	}
	if _, err := Issue(data, hosts, start); err == nil {
		t.Error("the server can sign for others")
	}
	other, err := Alone(hosts, 3*time.Hour, start)
	if err != nil || other.Authority == one.Authority {
		t.Errorf("two of them have one authority: %v", err)
	}
	block, _ := pem.Decode(one.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || cert.IsCA || !cert.NotAfter.Equal(start.Add(3*time.Hour)) {
		t.Errorf("the server's certificate: %+v, %v", cert, err)
	}
}
