package tlspolicy

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/certs"
)

// served is a server that policy guards: its address, and whom to trust.
func served(t *testing.T, policy *Policy) (string, *x509.CertPool) {
	t.Helper()
	issued, err := certs.Alone([]string{"localhost"}, time.Hour, time.Now())
	must(t, err)
	pair, err := tls.X509KeyPair(issued.Cert, issued.Key)
	must(t, err)
	config := &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	policy.Guard(config)
	config.Certificates = []tls.Certificate{pair} // as of servers that make theirs when they start
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	must(t, err)
	web := &http.Server{Handler: http.NotFoundHandler(), TLSConfig: config, ReadHeaderTimeout: time.Minute}
	t.Cleanup(func() { _ = web.Close() })
	go func() { _ = web.ServeTLS(listener, "", "") }()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(issued.Bundle)
	return listener.Addr().String(), trusted
}

// Servers speak what is set, from the next connection on, and what they always did when nothing is set any more.
func TestServersFollowWhatIsSet(t *testing.T) {
	policy := &Policy{}
	address, trusted := served(t, policy)
	speak := func(client *tls.Config) (tls.ConnectionState, error) {
		client = client.Clone()
		client.RootCAs, client.ServerName, client.NextProtos = trusted, "localhost", []string{"h2", "http/1.1"}
		conn, err := (&tls.Dialer{Config: client}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return tls.ConnectionState{}, err //nolint:wrapcheck // looked at
		}
		defer func() { _ = conn.Close() }()
		state := conn.(*tls.Conn).ConnectionState() //nolint:forcetypeassert // it is tls' own
		return state, nil
	}
	const gcm128, cbc = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA
	old := &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, CipherSuites: []uint16{cbc}} //nolint:gosec // refused
	of12 := &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}
	of13 := &tls.Config{MinVersion: tls.VersionTLS13}
	for _, c := range []struct {
		name                string
		set                 *Settings
		old, of12, of13, h2 bool
	}{
		{"nothing", nil, false, true, true, true},
		{"modern", OfProfile(&cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileModernType}), false, false, true, true},
		{"intermediate", OfProfile(&cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileIntermediateType}), false, true, true, true},
		{"old", OfProfile(&cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileOldType}), true, true, true, true},
		{"one cipher", OfKubeVirt(&virtv1.TLSConfiguration{MinTLSVersion: virtv1.VersionTLS12, Ciphers: []string{tls.CipherSuiteName(cbc)}}), false, true, true, false},
		{"nothing again", nil, false, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy.Set(c.set)
			for version, pair := range map[string]struct {
				client *tls.Config
				want   bool
			}{"1.1": {old, c.old}, "1.2": {of12, c.of12}, "1.3": {of13, c.of13}} {
				if _, err := speak(pair.client); (err == nil) != pair.want {
					t.Errorf("TLS %s: %v, want it spoken: %t", version, err, pair.want)
				}
			}
			state, err := speak(of13)
			if err != nil || (state.NegotiatedProtocol == "h2") != c.h2 {
				t.Errorf("HTTP: %q, %v, want h2: %t", state.NegotiatedProtocol, err, c.h2)
			}
			if c.set != nil && c.of12 {
				state, err := speak(of12)
				if err != nil || !slices.Contains(c.set.Ciphers, state.CipherSuite) {
					t.Errorf("cipher %s, %v", tls.CipherSuiteName(state.CipherSuite), err)
				}
			}
		})
	}
	_, err := speak(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{gcm128}}) //nolint:gosec // of the server it is tested
	must(t, err)
}

func TestANilPolicyIsOfTLS12(t *testing.T) {
	config := &tls.Config{}
	(*Policy)(nil).Guard(config)
	if config.MinVersion != tls.VersionTLS12 || config.GetConfigForClient != nil {
		t.Errorf("%+v", config)
	}
}

// What is handed to a pod is what it then has.
func TestFlagsSayTheSame(t *testing.T) {
	for _, c := range []*Settings{
		nil,
		OfProfile(&cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileModernType}),
		OfProfile(&cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileIntermediateType}),
		OfProfile(&cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileOldType}),
	} {
		given := c.KubeVirt()
		if given == nil {
			given = &virtv1.TLSConfiguration{}
		}
		policy, err := Parse(string(given.MinTLSVersion), given.Ciphers)
		must(t, err)
		if !policy.current.Load().equal(c) {
			t.Errorf("%v became %v", c.Args(), policy.current.Load().Args())
		}
	}
	if got := OfProfile(&cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileModernType}).Args(); !slices.Equal(got, []string{"--tls-min-version=VersionTLS13"}) {
		t.Errorf("modern: %v", got)
	}
	for _, bad := range []struct {
		version string
		cipher  string
	}{{"1.2", example}, {"VersionTLS12", exampleOpenSSL}} {
		if _, err := Parse(bad.version, []string{bad.cipher}); err == nil {
			t.Errorf("taken: %v", bad)
		}
	}
}

// What is said again keeps the settings, and so the keys of sessions.
func TestWhatIsSaidAgainChangesNothing(t *testing.T) {
	config := &virtv1.TLSConfiguration{MinTLSVersion: virtv1.VersionTLS13}
	policy := &Policy{}
	policy.change(logr.Discard(), OfKubeVirt(config))
	first := policy.current.Load()
	policy.change(logr.Discard(), OfKubeVirt(config.DeepCopy()))
	if policy.current.Load() != first || first.MinVersion != tls.VersionTLS13 {
		t.Errorf("from %v to %v", first, policy.current.Load())
	}
	policy.change(logr.Discard(), OfKubeVirt(nil))
	if policy.current.Load() != nil {
		t.Error("the settings stay when the object has gone")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
