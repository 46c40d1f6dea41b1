package tlspolicy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// refused checks that errs are those of want, which each is a part of; none when it is empty.
func refused(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	if len(errs) != len(want) {
		t.Fatalf("got %v, want %d errors", errs, len(want))
	}
	for i, part := range want {
		if !strings.Contains(errs[i].Error(), part) {
			t.Errorf("got %q, want a part %q", errs[i], part)
		}
	}
}

func TestWhatKubeVirtMaySayOfTLS(t *testing.T) {
	for name, c := range map[string]struct {
		config *virtv1.TLSConfiguration
		want   []string
	}{
		"nothing":              {},
		"nothing, written":     {config: &virtv1.TLSConfiguration{}},
		"a version":            {config: &virtv1.TLSConfiguration{MinTLSVersion: virtv1.VersionTLS13}},
		"a version and cipher": {config: &virtv1.TLSConfiguration{MinTLSVersion: virtv1.VersionTLS12, Ciphers: []string{example, "TLS_AES_128_GCM_SHA256"}}},
		"what old clients need": {config: &virtv1.TLSConfiguration{
			MinTLSVersion: virtv1.VersionTLS10, Ciphers: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA"},
		}},
		"no such version": {
			config: &virtv1.TLSConfiguration{MinTLSVersion: "VersionTLS14"},
			want:   []string{`at.minTLSVersion: Unsupported value: "VersionTLS14"`},
		},
		"ciphers without a version": {
			config: &virtv1.TLSConfiguration{Ciphers: []string{example}},
			want:   []string{"at.ciphers: Forbidden: You cannot specify ciphers when at.minTLSVersion is empty or VersionTLS13"},
		},
		"ciphers with the newest version": {
			config: &virtv1.TLSConfiguration{MinTLSVersion: virtv1.VersionTLS13, Ciphers: []string{example}},
			want:   []string{"You cannot specify ciphers when"},
		},
		"no such cipher": {
			config: &virtv1.TLSConfiguration{MinTLSVersion: virtv1.VersionTLS12, Ciphers: []string{example, "NOT_VALID_CIPHER", exampleOpenSSL}},
			want:   []string{"at.ciphers[1]: Invalid value: \"NOT_VALID_CIPHER\": NOT_VALID_CIPHER is not a valid cipher", "at.ciphers[2]"},
		},
		"ciphers of RSA alone": {
			config: &virtv1.TLSConfiguration{MinTLSVersion: virtv1.VersionTLS12, Ciphers: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}},
			want:   []string{"at.ciphers: Invalid value: \"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\": none of them goes with Slipway's certificates"},
		},
	} {
		t.Run(name, func(t *testing.T) { refused(t, ValidateKubeVirt(c.config, field.NewPath("at")), c.want...) })
	}
}

func TestWhatAProfileMaySay(t *testing.T) {
	of := func(version cdiv1.TLSProtocolVersion, ciphers ...string) *cdiv1.TLSSecurityProfile {
		return &cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileCustomType, Custom: &cdiv1.CustomTLSProfile{
			TLSProfileSpec: cdiv1.TLSProfileSpec{MinTLSVersion: version, Ciphers: ciphers},
		}}
	}
	everything := cdiv1.TLSProfiles[cdiv1.TLSProfileOldType]
	for name, c := range map[string]struct {
		profile *cdiv1.TLSSecurityProfile
		want    []string
	}{
		"nothing":                 {},
		"old":                     {profile: &cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileOldType, Old: &cdiv1.OldTLSProfile{}}},
		"intermediate, by name":   {profile: &cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileIntermediateType}},
		"modern":                  {profile: &cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileModernType, Modern: &cdiv1.ModernTLSProfile{}}},
		"own":                     {profile: of(cdiv1.VersionTLS12, exampleOpenSSL, "ECDHE-RSA-AES128-GCM-SHA256")},
		"own, all that there are": {profile: of(everything.MinTLSVersion, everything.Ciphers...)},
		"own, the newest":         {profile: of(cdiv1.VersionTLS13)},
		"no type": {
			profile: &cdiv1.TLSSecurityProfile{},
			want:    []string{`at.type: Unsupported value: ""`},
		},
		"another's part": {
			profile: &cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileModernType, Intermediate: &cdiv1.IntermediateTLSProfile{}},
			want:    []string{"at.intermediate: Forbidden: the type is Modern"},
		},
		"own, without it": {
			profile: &cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileCustomType},
			want:    []string{"at.custom: Required value"},
		},
		"own, no version":   {profile: of("", exampleOpenSSL), want: []string{"at.custom.minTLSVersion: Required value"}},
		"own, no cipher":    {profile: of(cdiv1.VersionTLS11), want: []string{"at.custom.ciphers: Required value: You must specify at least one cipher"}},
		"own, bad version":  {profile: of("1.2", exampleOpenSSL), want: []string{`at.custom.minTLSVersion: Unsupported value: "1.2"`}},
		"ciphers of none":   {profile: of(cdiv1.VersionTLS13, exampleOpenSSL), want: []string{"at.custom.ciphers: Forbidden: You cannot specify ciphers when at.custom.minTLSVersion is VersionTLS13"}},
		"no such cipher":    {profile: of(cdiv1.VersionTLS12, exampleOpenSSL, "ROT13"), want: []string{`at.custom.ciphers[1]: Invalid value: "ROT13"`}},
		"the other's names": {profile: of(cdiv1.VersionTLS12, example), want: []string{"at.custom.ciphers[0]"}},
		"only of RSA":       {profile: of(cdiv1.VersionTLS12, "ECDHE-RSA-AES128-GCM-SHA256"), want: []string{"at.custom.ciphers: Invalid value"}},
		"only of the newest": {
			profile: of(cdiv1.VersionTLS12, "TLS_AES_128_GCM_SHA256"), want: []string{"at.custom.ciphers: Invalid value"},
		},
	} {
		t.Run(name, func(t *testing.T) { refused(t, ValidateProfile(c.profile, field.NewPath("at")), c.want...) })
	}
}
