package upload

import (
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestATokenNamesItsClaimForFiveMinutes(t *testing.T) {
	key, other := newKey(t), newKey(t)
	target := Target{Namespace: "shop", Name: "debian", UID: "5f0a"}
	token, err := Sign(key, target, now)
	if err != nil {
		t.Fatal(err)
	}
	keys := []*rsa.PublicKey{&other.PublicKey, &key.PublicKey}
	for _, at := range []time.Duration{-9 * time.Second, 0, TokenLifetime, TokenLifetime + 9*time.Second} {
		if got, err := Verify(keys, token, now.Add(at)); err != nil || got != target {
			t.Errorf("after %s: %+v, %v", at, got, err)
		}
	}
	for _, at := range []time.Duration{-11 * time.Second, TokenLifetime + 11*time.Second, 24 * time.Hour} {
		if _, err := Verify(keys, token, now.Add(at)); err == nil {
			t.Errorf("taken after %s", at)
		}
	}
	if _, err := Verify(keys[:1], token, now); err == nil {
		t.Error("taken by a key that has not signed it")
	}
	if _, err := Verify(nil, token, now); err == nil {
		t.Error("taken without any key")
	}
	if _, err := Verify(keys, strings.Repeat("x", maxToken+1), now); err == nil {
		t.Error("a very long token is taken")
	}
}

// What is signed by our own key, but not for an upload, is told apart: 400 and not 401.
func TestATokenForSomethingElseIsRefused(t *testing.T) {
	key := newKey(t)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.PS256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	good := payload{Operation: "Upload", Name: "a", Namespace: "b", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}}
	for name, change := range map[string]func(*payload){
		"to clone":        func(p *payload) { p.Operation = "Clone" },
		"of a Secret":     func(p *payload) { p.Resource.Resource = "secrets" },
		"of no namespace": func(p *payload) { p.Namespace = "" },
		"of no claim":     func(p *payload) { p.Name = "" },
	} {
		said := good
		change(&said)
		token, err := jwt.Signed(signer).Claims(jwt.Claims{
			Issuer: tokenIssuer, NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(time.Minute)),
		}).Claims(said).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Verify([]*rsa.PublicKey{&key.PublicKey}, token, now); err != ErrPurpose { //nolint:errorlint // itself
			t.Errorf("%s: %v", name, err)
		}
	}
	token, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: tokenIssuer}).Claims(good).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify([]*rsa.PublicKey{&key.PublicKey}, token, now); err == nil {
		t.Error("a token that is good for ever is taken")
	}
}

// At whatever moment a token is asked for, it is known by the keys that were published a minute
// before, and by all that are published while it is good.
func TestAKeyIsReplacedUnnoticed(t *testing.T) {
	signing, data, err := renewKey(nil, now)
	if err != nil || data == nil {
		t.Fatalf("no key was made: %v", err)
	}
	first := signing
	verify := func(key *rsa.PrivateKey, published map[string][]byte, at time.Time) {
		t.Helper()
		token, err := Sign(key, Target{Namespace: "n", Name: "c"}, at)
		if err != nil {
			t.Fatal(err)
		}
		public, err := publicKeys(published)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := ParsePublicKeys(string(public))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(keys, token, at); err != nil {
			t.Errorf("at %s: %v", at, err)
		}
	}
	verify(signing, data, now)
	due := now.Add(keyLifetime)
	if _, renewed, _ := renewKey(data, due.Add(-time.Second)); renewed != nil {
		t.Error("renewed before its time")
	}
	old := data
	signing, data, err = renewKey(old, due)
	if err != nil || data == nil || !signing.Equal(first) {
		t.Fatalf("at its end: %v", err)
	}
	verify(signing, old, due)
	verify(signing, data, due)
	signing, renewed, err := renewKey(data, due.Add(2*keySpread))
	if err != nil || renewed != nil || signing.Equal(first) {
		t.Fatalf("the new key does not sign: %v", err)
	}
	verify(signing, data, due.Add(2*keySpread))
	verify(first, data, due.Add(2*keySpread))
	_, data, err = renewKey(data, due.Add(time.Hour))
	if err != nil || data == nil || data[keyPrevious] != nil {
		t.Fatalf("the old key stays: %v", err)
	}
}

func TestNamesOfServersAreNamesOfServices(t *testing.T) {
	seen := map[string]bool{}
	for _, claim := range []string{"debian", "debian.12", "debian-12", strings.Repeat("a", 253), strings.Repeat("a", 252), strings.Repeat("b.", 100) + "c", strings.Repeat("a", 52), strings.Repeat("a", 53)} {
		name := ServerName(claim)
		if problems := validation.IsDNS1035Label(name); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		if seen[name] {
			t.Errorf("%s is the name of two", name)
		}
		seen[name] = true
	}
	if name := ServerName("debian"); name != "cdi-upload-debian" {
		t.Errorf("got %s", name)
	}
}

func TestPathsAreTheFields(t *testing.T) {
	if n := len(Paths()); n != 8 {
		t.Errorf("%d paths", n)
	}
	for path, want := range map[string][3]bool{
		"/v1beta1/upload": {true, false, false}, "/v1alpha1/upload-async": {true, false, true},
		"/v1beta1/upload-form": {true, true, false}, "/v1alpha1/upload-form-async": {true, true, true},
		"/v1beta1/upload/": {}, "/v2/upload": {}, "/upload": {}, "": {},
	} {
		found, form, async := IsPath(path)
		if got := [3]bool{found, form, async}; got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
