package source

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"golang.org/x/oauth2/jwt"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// gcsHost is Google's server of buckets, gcsScope the right to read them.
const (
	gcsHost  = "storage.googleapis.com"
	gcsScope = "https://www.googleapis.com/auth/devstorage.read_only"
)

// GCSAddress is the web address of an object in Google Cloud Storage: that of a gs:// URL; an
// http or https URL is one already.
func GCSAddress(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", transfer.Errorf(transfer.BadRequest, "the URL cannot be read: %w", err)
	}
	if u.Scheme != "gs" {
		return text, nil
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return "", transfer.Errorf(transfer.BadRequest, "the URL %q has a ? or #; write %%3F or %%23 where the object's name has one", place(u))
	}
	if u.Host == "" || len(u.Path) < 2 {
		return "", transfer.Errorf(transfer.BadRequest, "the URL %q names no object; write gs://bucket/object", u.Redacted())
	}
	return (&url.URL{Scheme: "https", Host: gcsHost, Path: "/" + u.Host + u.Path}).String(), nil
}

// GCS is the access of a service account. It gets tokens with the account's key, each for as long as it is good.
type GCS struct {
	account *jwt.Config
	client  *http.Client
	asked   *lastError

	mu    sync.Mutex
	token *oauth2.Token
}

// NewGCS returns the access of the service account whose key, as JSON, is given. proxyCertDir is as in Options.
func NewGCS(key []byte, proxyCertDir string) (*GCS, error) {
	account, err := google.JWTConfigFromJSON(key, gcsScope)
	if err != nil || !signs(account.PrivateKey) {
		// The library's error may hold a part of the key.
		return nil, transfer.Errorf(transfer.BadRequest, "credentials.json of the Secret of secretRef is no key of a service account; make one with gcloud iam service-accounts keys create")
	}
	roots, err := certificates("", proxyCertDir)
	if err != nil {
		return nil, err
	}
	asked := &lastError{RoundTripper: transport(withDefaults(Options{}), roots, roots)}
	return &GCS{account: account, asked: asked, client: &http.Client{
		Transport: asked, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // what the key has signed is for one server
	}}, nil
}

// lastError keeps why the last request failed, of which the library that gets tokens hands down the text alone.
type lastError struct {
	http.RoundTripper

	err error
}

// RoundTrip sends a request.
func (l *lastError) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(request)
	l.err = err
	return response, err //nolint:wrapcheck // the HTTP client words it
}

// signs reports whether key, as PEM, is a private key of the kind that Google gives out.
func signs(key []byte) bool {
	block, _ := pem.Decode(key)
	if block == nil {
		return false
	}
	if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return true
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	_, isRSA := parsed.(*rsa.PrivateKey)
	return err == nil && isRSA
}

// Sign puts a token onto the request.
func (g *GCS) Sign(request *http.Request) error {
	token, err := g.valid(request.Context())
	if err != nil {
		return err
	}
	token.SetAuthHeader(request)
	return nil
}

// valid returns a token that is good for a while. Requests that come meanwhile wait for it.
func (g *GCS) valid(ctx context.Context) (*oauth2.Token, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token.Valid() {
		return g.token, nil
	}
	g.asked.err = nil
	token, err := g.account.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, g.client)).Token()
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case ok && refused.Response.StatusCode == http.StatusProxyAuthRequired:
		return nil, refusedByProxy(g.account.TokenURL, refused.Response.StatusCode)
	case ok && refused.Response.StatusCode < http.StatusInternalServerError:
		return nil, transfer.Errorf(transfer.Unauthorized, "%s gives the service account %s no token (%s); check that the account and its key still exist",
			g.account.TokenURL, g.account.Email, refused.Response.Status)
	case g.asked.err != nil:
		return nil, fmt.Errorf("getting a token for the service account: %w", g.asked.err)
	case err != nil:
		return nil, fmt.Errorf("getting a token for the service account: %w", err)
	}
	g.token = token
	return token, nil
}
