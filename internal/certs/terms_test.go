package certs

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func hours(n float64) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n * float64(time.Hour))}
}

func TestWhatKubeVirtAsksFor(t *testing.T) {
	for name, c := range map[string]struct {
		asked *virtv1.KubeVirtSelfSignConfiguration
		want  Lifetimes
		wrong string // a part of what is said of it; empty when it is good
	}{
		"nothing": {want: DefaultLifetimes()},
		"all": {
			asked: &virtv1.KubeVirtSelfSignConfiguration{
				CA: &virtv1.CertConfig{Duration: hours(48), RenewBefore: hours(24)}, Server: &virtv1.CertConfig{Duration: hours(20), RenewBefore: hours(8)},
			},
			want: Lifetimes{CA: 48 * time.Hour, CARenewBefore: 24 * time.Hour, Serving: 20 * time.Hour, ServingRenewBefore: 8 * time.Hour},
		},
		"lengths alone": {
			asked: &virtv1.KubeVirtSelfSignConfiguration{CA: &virtv1.CertConfig{Duration: hours(50)}, Server: &virtv1.CertConfig{Duration: hours(5)}},
			want:  Lifetimes{CA: 50 * time.Hour, CARenewBefore: 10 * time.Hour, Serving: 5 * time.Hour, ServingRenewBefore: time.Hour},
		},
		"by the former names": {
			asked: &virtv1.KubeVirtSelfSignConfiguration{CARotateInterval: hours(30), CAOverlapInterval: hours(3), CertRotateInterval: hours(10)},
			want:  Lifetimes{CA: 30 * time.Hour, CARenewBefore: 3 * time.Hour, Serving: 10 * time.Hour, ServingRenewBefore: 2 * time.Hour},
		},
		"by both": {
			asked: &virtv1.KubeVirtSelfSignConfiguration{CARotateInterval: hours(30), Server: &virtv1.CertConfig{}},
			wrong: "at: Forbidden: caRotateInterval, certRotateInterval and caOverlapInterval are deprecated and conflict with CertConfig defined rotation parameters",
		},
		"a blink":             {asked: &virtv1.KubeVirtSelfSignConfiguration{Server: &virtv1.CertConfig{Duration: hours(0.1)}}, wrong: "at.server.duration: Invalid value: \"6m0s\": it is at least 10m0s"},
		"always renewed":      {asked: &virtv1.KubeVirtSelfSignConfiguration{CA: &virtv1.CertConfig{Duration: hours(48), RenewBefore: hours(48)}}, wrong: "at.ca.renewBefore: Invalid value: \"48h0m0s\": it must be less than at.ca.duration"},
		"never renewed":       {asked: &virtv1.KubeVirtSelfSignConfiguration{CA: &virtv1.CertConfig{RenewBefore: hours(-1)}}, wrong: "at.ca.renewBefore: Invalid value: \"-1h0m0s\""},
		"beyond its signer":   {asked: &virtv1.KubeVirtSelfSignConfiguration{CA: &virtv1.CertConfig{Duration: hours(12)}}, wrong: "at.server.duration: Invalid value: \"24h0m0s\": a certificate does not last longer than its authority; make it at most 12h0m0s"},
		"beyond, former name": {asked: &virtv1.KubeVirtSelfSignConfiguration{CertRotateInterval: hours(300)}, wrong: "at.certRotateInterval: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := ValidateKubeVirt(c.asked, field.NewPath("at"))
			if c.wrong != "" {
				if len(errs) != 1 || !strings.Contains(errs[0].Error(), c.wrong) {
					t.Errorf("got %v, want %q", errs, c.wrong)
				}
				return
			}
			if got := rotation(c.asked); len(errs) > 0 || got != c.want {
				t.Errorf("got %+v (%v), want %+v", got, errs, c.want)
			}
		})
	}
}

func TestWhatCDIAsksFor(t *testing.T) {
	asked := &cdiv1.CDICertConfig{
		CA: &cdiv1.CertConfig{Duration: hours(48)}, Server: &cdiv1.CertConfig{Duration: hours(24), RenewBefore: hours(6)}, Client: &cdiv1.CertConfig{Duration: hours(4)},
	}
	if errs := ValidateCDI(asked, field.NewPath("at")); len(errs) > 0 {
		t.Error(errs)
	}
	server, client := ofCDI(asked, false), ofCDI(asked, true)
	if want := (Lifetimes{48 * time.Hour, 24 * time.Hour, 24 * time.Hour, 6 * time.Hour}); server != want {
		t.Errorf("of servers %+v", server)
	}
	if want := (Lifetimes{48 * time.Hour, 24 * time.Hour, 4 * time.Hour, 2 * time.Hour}); client != want {
		t.Errorf("of clients %+v", client)
	}
	for path, bad := range map[string]*cdiv1.CDICertConfig{
		"at.client.duration":    {CA: &cdiv1.CertConfig{Duration: hours(48)}, Client: &cdiv1.CertConfig{Duration: hours(49)}},
		"at.server.renewBefore": {Server: &cdiv1.CertConfig{RenewBefore: hours(24)}},
		"at.ca.duration":        {CA: &cdiv1.CertConfig{Duration: hours(0)}},
	} {
		if errs := ValidateCDI(bad, field.NewPath("at")); !slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Field == path }) {
			t.Errorf("got %v, want a refusal of %s", errs, path)
		}
	}
}

// Who keeps certificates is told of other lifetimes, and not of the same.
func TestTermsTellOfChanges(t *testing.T) {
	terms := OfKubeVirt()
	told := func() bool {
		select {
		case <-terms.Changed():
			return true
		default:
			return false
		}
	}
	kv := &virtv1.KubeVirt{}
	terms.set(terms.of(kv))
	if told() || terms.Lifetimes() != DefaultLifetimes() {
		t.Error("it tells of what it was before")
	}
	kv.Spec.CertificateRotationStrategy.SelfSigned = &virtv1.KubeVirtSelfSignConfiguration{Server: &virtv1.CertConfig{Duration: hours(1)}}
	terms.set(terms.of(kv))
	terms.set(terms.of(nil))
	if !told() || told() || terms.Lifetimes() != DefaultLifetimes() || (*Terms)(nil).Lifetimes() != DefaultLifetimes() {
		t.Errorf("the object has gone, and %+v stay", terms.Lifetimes())
	}
}

// What would last longer than is asked for now is renewed at once, and nobody who trusts its authority is turned away.
func TestShorterLifetimesHoldAtOnce(t *testing.T) {
	long, _, _ := renew(t, nil, start)
	now := start.Add(time.Minute)
	short := Lifetimes{CA: 2 * time.Hour, CARenewBefore: time.Hour, Serving: time.Hour, ServingRenewBefore: 20 * time.Minute}
	data, changed, next, err := Renew(long, hosts, short, now)
	if err != nil || !changed {
		t.Fatalf("nothing was renewed: %v", err)
	}
	verify(t, long[KeyBundle], data, now)
	verify(t, data[KeyBundle], long, now)
	end := func(data []byte) time.Time {
		block, _ := pem.Decode(data)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return cert.NotAfter
	}
	if got := end(data[KeyCert]); !got.Equal(now.Add(short.Serving)) {
		t.Errorf("the certificate ends at %s", got)
	}
	if got := end(data[KeyBundle]); !got.Equal(now.Add(short.CA)) || !next.Equal(now.Add(40*time.Minute)) {
		t.Errorf("the authority ends at %s, and is looked at again at %s", got, next)
	}
	if _, changed, _, err := Renew(data, hosts, short, now); err != nil || changed {
		t.Errorf("renewed again at once: %v", err)
	}
}
