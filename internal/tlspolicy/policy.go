// Package tlspolicy is what the KubeVirt and the CDI object say of the TLS that Slipway's servers speak: the least
// version, and the ciphers of versions before 1.3. Components follow it while they run. Servers that live for one upload
// or one export are told when their pods are made.
package tlspolicy

import (
	"crypto/tls"
	"slices"
	"sync/atomic"
)

// Settings are how servers speak TLS. They are not changed once they are made.
type Settings struct {
	// MinVersion is the least version, a constant of crypto/tls.
	MinVersion uint16
	// Ciphers are those of versions before 1.3, constants of crypto/tls, of which the order says nothing; nil for those
	// that Go takes by itself.
	Ciphers []uint16
}

// Policy is what holds for a program's servers. Where nothing is set they speak TLS 1.2 and newer, with the ciphers that
// Go takes by itself. A nil Policy is one of which nothing is ever set.
type Policy struct {
	current atomic.Pointer[Settings]
}

// Set has settings hold for connections from now on; nil sets nothing.
func (p *Policy) Set(settings *Settings) { p.current.Store(settings) }

// Guard has a server with config speak TLS as p says, whenever a connection begins. All else of config is to be set before
// the server starts, and stays as it is; it must have its own NextProtos, where the server takes HTTP.
func (p *Policy) Guard(config *tls.Config) {
	config.MinVersion = tls.VersionTLS12
	if p == nil {
		return
	}
	var last atomic.Pointer[made]
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		settings := p.current.Load()
		if settings == nil {
			return nil, nil //nolint:nilnil // it means config itself
		}
		now := last.Load()
		if now == nil || now.settings != settings {
			now = &made{settings: settings, config: settings.with(config)}
			last.Store(now)
		}
		return now.config, nil
	}
}

// made is a server's configuration as settings have it. It is kept, for the keys of its sessions.
type made struct {
	settings *Settings
	config   *tls.Config
}

// with is base as the settings have it.
func (s *Settings) with(base *tls.Config) *tls.Config {
	config := base.Clone()
	config.GetConfigForClient = nil
	config.MinVersion, config.CipherSuites = s.MinVersion, s.Ciphers
	if s.Ciphers != nil && !slices.ContainsFunc(s.Ciphers, ofHTTP2) {
		config.NextProtos = slices.DeleteFunc(slices.Clone(config.NextProtos), func(name string) bool { return name == "h2" })
	}
	return config
}

// ofHTTP2 says whether cipher is one of those that HTTP/2 asks of everybody (RFC 9113, 9.2.2). Without them clients would
// agree upon HTTP/2, and then be sent away.
func ofHTTP2(cipher uint16) bool {
	return cipher == tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 || cipher == tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
}
