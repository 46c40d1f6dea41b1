package hyperconverged

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

// The KubeVirt object has what a profile stands for, the CDI object the profile.
func TestAProfileIsHandedOn(t *testing.T) {
	own := func(version cdiv1.TLSProtocolVersion, ciphers ...string) *cdiv1.TLSSecurityProfile {
		return &cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileCustomType, Custom: &cdiv1.CustomTLSProfile{
			TLSProfileSpec: cdiv1.TLSProfileSpec{MinTLSVersion: version, Ciphers: ciphers},
		}}
	}
	for name, c := range map[string]struct {
		profile     *cdiv1.TLSSecurityProfile
		wantVersion string
		wantCiphers []string
		wantError   string // part of it; none when empty
	}{
		"none":   {},
		"modern": {profile: &cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileModernType, Modern: &cdiv1.ModernTLSProfile{}}, wantVersion: "VersionTLS13"},
		"own": {
			profile: own(cdiv1.VersionTLS11, "ECDHE-ECDSA-AES128-SHA", "DHE-RSA-AES128-SHA256"), wantVersion: "VersionTLS11",
			wantCiphers: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"},
		},
		"a bad one": {profile: own(cdiv1.VersionTLS12, "ROT13"), wantError: "spec.security.tlsSecurityProfile.custom.ciphers[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			hco := &hcov1.HyperConverged{}
			hco.Spec.Security.TLSSecurityProfile = c.profile
			objects, err := operands(hco, testOptions().Values())
			if c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Errorf("got error %v, want one with %q", err, c.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			version, _, _ := unstructured.NestedString(objects[0].Object, "spec", "configuration", "tlsConfiguration", "minTLSVersion")
			ciphers, _, err := unstructured.NestedStringSlice(objects[0].Object, "spec", "configuration", "tlsConfiguration", "ciphers")
			if err != nil || version != c.wantVersion || !slices.Equal(ciphers, c.wantCiphers) {
				t.Errorf("KubeVirt has %s %v (%v), want %s %v", version, ciphers, err, c.wantVersion, c.wantCiphers)
			}
			kind, _, err := unstructured.NestedString(objects[1].Object, "spec", "config", "tlsSecurityProfile", "type")
			if err != nil || (kind != "") != (c.profile != nil) {
				t.Errorf("CDI has a profile %q (%v)", kind, err)
			}
		})
	}
}

// Both objects have how long certificates are valid, with the time before their end where only that was left out.
func TestLifetimesAreHandedOn(t *testing.T) {
	hours := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Hour} }
	hco := &hcov1.HyperConverged{}
	hco.Spec.Security.CertConfig = &hcov1.CertConfig{CA: &cdiv1.CertConfig{Duration: hours(48)}, Server: &cdiv1.CertConfig{Duration: hours(24), RenewBefore: hours(6)}}
	objects, err := operands(hco, testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	const ca, server = `{"duration":"48h0m0s","renewBefore":"24h0m0s"}`, `{"duration":"24h0m0s","renewBefore":"6h0m0s"}`
	for i, want := range map[int]string{
		0: `{"ca":` + ca + `,"server":` + server + `}`,
		1: `{"ca":` + ca + `,"client":` + server + `,"server":` + server + `}`,
	} {
		path := map[int][]string{0: {"spec", "certificateRotateStrategy", "selfSigned"}, 1: {"spec", "certConfig"}}[i]
		got, _, err := unstructured.NestedMap(objects[i].Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := json.Marshal(got); err != nil || string(data) != want {
			t.Errorf("%s has %s (%v), want %s", objects[i].GetKind(), data, err, want)
		}
	}
	hco.Spec.Security.CertConfig.CA.Duration = hours(12)
	if _, err := operands(hco, testOptions().Values()); err == nil || !strings.Contains(err.Error(), "spec.security.certConfig.server.duration") {
		t.Errorf("got error %v", err)
	}
}
