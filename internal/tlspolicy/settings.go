package tlspolicy

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// OfKubeVirt reads tlsConfiguration of the KubeVirt object, which may be nil: then nothing is set. Names that it does not
// know, which admission refuses, stand for nothing.
func OfKubeVirt(config *virtv1.TLSConfiguration) *Settings {
	if config == nil || config.MinTLSVersion == "" && len(config.Ciphers) == 0 {
		return nil
	}
	var chosen []uint16
	for _, name := range config.Ciphers {
		if cipher, known := ciphers()[name]; known {
			chosen = append(chosen, cipher)
		}
	}
	return settings(string(config.MinTLSVersion), chosen)
}

// OfProfile reads tlsSecurityProfile of the CDI or the HyperConverged object, which may be nil: then nothing is set. Ciphers
// that Go does not have are left out.
func OfProfile(profile *cdiv1.TLSSecurityProfile) *Settings {
	spec := specOf(profile)
	if spec == nil {
		return nil
	}
	var chosen []uint16
	for _, name := range spec.Ciphers {
		if cipher, has, _ := ofProfile(name); has {
			chosen = append(chosen, cipher)
		}
	}
	return settings(string(spec.MinTLSVersion), chosen)
}

// specOf is what a profile stands for, nil for nothing.
func specOf(profile *cdiv1.TLSSecurityProfile) *cdiv1.TLSProfileSpec {
	switch {
	case profile == nil:
		return nil
	case profile.Type != cdiv1.TLSProfileCustomType:
		return cdiv1.TLSProfiles[profile.Type]
	case profile.Custom == nil:
		return nil
	}
	return &profile.Custom.TLSProfileSpec
}

// settings are those of a least version by its name, 1.2 where that says nothing, and of ciphers.
func settings(version string, chosen []uint16) *Settings {
	s := &Settings{MinVersion: tls.VersionTLS12, Ciphers: chosen}
	if known, is := versions[version]; is {
		s.MinVersion = known
	}
	if s.MinVersion == tls.VersionTLS13 {
		s.Ciphers = nil // they are of versions before
	}
	return s
}

// KubeVirt is what the KubeVirt object says for s to hold; nil for no settings.
func (s *Settings) KubeVirt() *virtv1.TLSConfiguration {
	if s == nil {
		return nil
	}
	config := &virtv1.TLSConfiguration{MinTLSVersion: virtv1.TLSProtocolVersion(versionName(s.MinVersion))}
	for _, cipher := range s.Ciphers {
		config.Ciphers = append(config.Ciphers, tls.CipherSuiteName(cipher))
	}
	return config
}

// Flags of programs that are told by their command line.
const (
	FlagMinVersion = "tls-min-version"
	FlagCiphers    = "tls-cipher-suites"
)

// Args are the flags of a program whose servers shall speak TLS by s; none for no settings.
func (s *Settings) Args() []string {
	config := s.KubeVirt()
	if config == nil {
		return nil
	}
	args := []string{"--" + FlagMinVersion + "=" + string(config.MinTLSVersion)}
	if len(config.Ciphers) > 0 {
		args = append(args, "--"+FlagCiphers+"="+strings.Join(config.Ciphers, ","))
	}
	return args
}

// Parse reads what the flags FlagMinVersion and FlagCiphers were given; empty ones set nothing.
func Parse(version string, names []string) (*Policy, error) {
	policy := &Policy{}
	if version == "" && len(names) == 0 {
		return policy, nil
	}
	if _, known := versions[version]; version != "" && !known {
		return nil, fmt.Errorf("--%s: there is no version %q; there are: %s", FlagMinVersion, version, strings.Join(versionNames(), ", "))
	}
	for _, name := range names {
		if _, known := ciphers()[name]; !known {
			return nil, fmt.Errorf("--%s: there is no cipher %q; write names such as %s", FlagCiphers, name, example)
		}
	}
	policy.Set(OfKubeVirt(&virtv1.TLSConfiguration{MinTLSVersion: virtv1.TLSProtocolVersion(version), Ciphers: names}))
	return policy, nil
}

// equal says whether two settings, each of which may be nil, are the same.
func (s *Settings) equal(other *Settings) bool {
	if s == nil || other == nil {
		return s == other
	}
	return s.MinVersion == other.MinVersion && slices.Equal(s.Ciphers, other.Ciphers)
}
