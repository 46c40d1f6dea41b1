package subresource

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// issued is a certificate with its key and who signed it.
type issued struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate of name, signed by signer, or an authority when that is nil.
func issue(t *testing.T, name string, signer *issued) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	parent := signer
	if signer == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		parent = &issued{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, &key.PublicKey, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issued{cert: cert, key: key}
}

func (i *issued) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

func (i *issued) tls() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{i.cert.Raw}, PrivateKey: i.key}
}

// configured is the ConfigMap of an API server whose front proxy has certificates of authority.
func configured(authority *issued) *corev1.ConfigMap {
	return &corev1.ConfigMap{Data: map[string]string{
		keyProxyCA: string(authority.pem()), keyProxyNames: `["front-proxy-client"]`,
		keyUserHeaders: `["X-Remote-User"]`, keyUIDHeaders: `["X-Remote-Uid"]`, keyGroupHeaders: `["X-Remote-Group"]`,
		keyExtraPrefixes: `["X-Remote-Extra-"]`,
	}}
}

// asked is a request of jane that comes with certificate, none when that is nil.
func asked(certificate *issued) *http.Request {
	r := httptest.NewRequest(http.MethodPut, groupPath+"/v1/namespaces/prod/virtualmachines/web/start", nil)
	r.Header = http.Header{
		"X-Remote-User": {"jane"}, "X-Remote-Uid": {"42"}, "X-Remote-Group": {"dev", "system:authenticated"},
		"X-Remote-Extra-Example.org%2fscopes": {"a", "b"}, "Accept": {"*/*"},
	}
	r.TLS = &tls.ConnectionState{}
	if certificate != nil {
		r.TLS.PeerCertificates = []*x509.Certificate{certificate.cert}
	}
	return r
}

func TestOnlyTheFrontProxySaysWhoAsks(t *testing.T) {
	authority := issue(t, "front proxies", nil)
	proxy := issue(t, "front-proxy-client", authority)
	for name, c := range map[string]struct {
		configMap *corev1.ConfigMap
		request   *http.Request
		wantCode  int32
		wantWords string
	}{
		"the front proxy":                            {configured(authority), asked(proxy), 0, ""},
		"nobody":                                     {configured(authority), asked(nil), http.StatusUnauthorized, "ask kube-apiserver"},
		"a certificate of another authority":         {configured(authority), asked(issue(t, "front-proxy-client", issue(t, "another", nil))), http.StatusUnauthorized, "unknown authority"},
		"another certificate of the authority":       {configured(authority), asked(issue(t, "webhooks", authority)), http.StatusUnauthorized, `"webhooks" is not among`},
		"a cluster without a front proxy":            {&corev1.ConfigMap{Data: map[string]string{"client-ca-file": "x"}}, asked(proxy), http.StatusUnauthorized, "--requestheader-client-ca-file"},
		"a cluster whose configuration is not known": {nil, asked(proxy), http.StatusServiceUnavailable, "has not been read"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &frontProxy{log: klog.Background()}
			if c.configMap != nil {
				p.follow(c.configMap)
			}
			user, err := p.identify(c.request)
			if c.wantCode != 0 {
				if status := statusOf(err); err == nil || status.Code != c.wantCode || !strings.Contains(status.Message, c.wantWords) {
					t.Errorf("got %v, want %d with %q", err, c.wantCode, c.wantWords)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := authenticationv1.UserInfo{Username: "jane", UID: "42", Groups: []string{"dev", "system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{"example.org/scopes": {"a", "b"}}}
			if !reflect.DeepEqual(user, want) {
				t.Errorf("got %+v, want %+v", user, want)
			}
			if left := c.request.Header; len(left) != 1 || left.Get("Accept") == "" {
				t.Errorf("headers go on: %v", left)
			}
		})
	}
}

func TestARequestWithoutAUserIsRefused(t *testing.T) {
	authority := issue(t, "front proxies", nil)
	p := &frontProxy{log: klog.Background()}
	p.follow(configured(authority))
	r := asked(issue(t, "front-proxy-client", authority))
	r.Header.Del("X-Remote-User")
	if _, err := p.identify(r); statusOf(err).Code != http.StatusUnauthorized {
		t.Errorf("got %v", err)
	}
}

func TestUnreadableConfigurationTrustsNobody(t *testing.T) {
	good := configured(issue(t, "front proxies", nil)).Data
	for key, damage := range map[string]string{keyProxyCA: "garbage", keyProxyNames: "garbage", keyUserHeaders: "[]"} {
		data := maps.Clone(good)
		data[key] = damage
		if trustOf(data).err == nil {
			t.Errorf("%s %q is taken", key, damage)
		}
	}
}
