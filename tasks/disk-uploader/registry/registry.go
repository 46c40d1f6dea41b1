// Package registry pushes blobs that are made while they are sent to a container registry: in
// chunks that are sent again when a connection breaks, or, where a registry takes no chunks, in
// one stream. What is held in memory is one chunk.
package registry

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-vm/slipway/tasks/disk-uploader/containerdisk"
)

// Options say how the registry is reached.
type Options struct {
	// User and Password are the credentials; without a user there are none.
	User, Password string
	// Authorities are certificates in PEM that are trusted beside the system's.
	Authorities []byte
	// PlainHTTP allows a registry without TLS.
	PlainHTTP bool
}

// Repository is where an image goes.
type Repository struct {
	tag     name.Tag
	options Options
	log     *slog.Logger
	retry   retry
	chunk   int

	root   url.URL // of the repository's API
	client *http.Client
}

// chunkBytes is how much is sent at once and can be sent again.
const chunkBytes = 8 << 20

// Parse reads the destination of an image, such as registry.example.com/images/golden:v1.
func Parse(destination string, options Options, log *slog.Logger) (*Repository, error) {
	naming := []name.Option{name.WithDefaultTag("latest")}
	if options.PlainHTTP {
		naming = append(naming, name.Insecure)
	}
	destination = strings.TrimPrefix(destination, "docker://")
	if strings.Contains(destination, "@") {
		return nil, fmt.Errorf("%q names a digest, which is known only after the push: name a tag", destination)
	}
	if strings.Contains(destination, "://") {
		return nil, fmt.Errorf("%q is an address: write it without the scheme, as registry.example.com/images/golden:v1", destination)
	}
	tag, err := name.NewTag(destination, naming...)
	if err != nil {
		return nil, fmt.Errorf("%q is no image reference: %w", destination, err)
	}
	return &Repository{tag: tag, options: options, log: log, retry: defaultRetry, chunk: chunkBytes}, nil
}

// String is the image's name with its tag.
func (r *Repository) String() string { return r.tag.Name() }

// Connect logs in, trying again while the registry cannot be reached.
func (r *Repository) Connect(ctx context.Context) error {
	base, err := r.transport()
	if err != nil {
		return err
	}
	scheme := "https"
	if r.options.PlainHTTP {
		scheme = "http"
	}
	r.root = url.URL{Scheme: scheme, Host: r.tag.RegistryStr(), Path: "/v2/" + r.tag.RepositoryStr() + "/"}
	r.client = &http.Client{CheckRedirect: noDowngrade(r.options.PlainHTTP), Transport: &login{
		RoundTripper: base, host: r.root.Host, scope: "repository:" + r.tag.RepositoryStr() + ":pull,push",
		user: r.options.User, password: r.options.Password,
	}}
	return r.retry.do(ctx, r.log, "connecting to registry "+r.tag.RegistryStr(), func() error {
		request, err := r.request(ctx, http.MethodGet, &url.URL{Scheme: scheme, Host: r.root.Host, Path: "/v2/"}, nil)
		if err != nil {
			return err
		}
		_, err = r.send(request, http.StatusOK)
		return err
	})
}

// transport is that of the standard library with our authorities, which refuses what is not TLS.
func (r *Repository) transport() (http.RoundTripper, error) {
	base := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the standard library's own
	base.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	base.ResponseHeaderTimeout = answerBound
	if len(r.options.Authorities) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(r.options.Authorities) {
			return nil, errors.New("the registry's authority is no certificate in PEM")
		}
		base.TLSClientConfig.RootCAs = pool
	}
	if r.options.PlainHTTP {
		return base, nil
	}
	return tlsOnly{base}, nil
}

// answerBound is how long a registry may take to answer a whole request.
const answerBound = 5 * time.Minute

// ErrPlain is returned for a registry that is not to be reached without TLS.
var ErrPlain = errors.New("nothing is sent without TLS; set PLAIN_HTTP to \"true\" for a registry that has none")

type tlsOnly struct{ http.RoundTripper }

// RoundTrip refuses what is not TLS.
func (t tlsOnly) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, ErrPlain
	}
	return t.RoundTripper.RoundTrip(request) //nolint:wrapcheck // a RoundTripper changes nothing
}

func noDowngrade(plain bool) func(*http.Request, []*http.Request) error {
	return func(request *http.Request, via []*http.Request) error {
		if request.URL.Scheme != "https" && !plain {
			return ErrPlain
		}
		if len(via) > 10 {
			return errors.New("the registry redirects in a circle")
		}
		return nil
	}
}

// Blob pushes data.
func (r *Repository) Blob(ctx context.Context, data []byte) error {
	_, err := r.Stream(ctx, func(w io.Writer) (containerdisk.Layer, error) {
		hash, size, err := v1.SHA256(bytes.NewReader(data))
		if err != nil {
			return containerdisk.Layer{}, fmt.Errorf("hashing: %w", err)
		}
		if _, err := w.Write(data); err != nil {
			return containerdisk.Layer{}, err //nolint:wrapcheck // Stream's own writer
		}
		return containerdisk.Layer{Blob: containerdisk.Blob{Digest: hash, Size: size}}, nil
	})
	return err
}

// Manifest pushes the image's manifest under its tag and returns its digest.
func (r *Repository) Manifest(ctx context.Context, manifest []byte) (string, error) {
	hash, _, err := v1.SHA256(bytes.NewReader(manifest))
	if err != nil {
		return "", fmt.Errorf("hashing the manifest: %w", err)
	}
	err = r.retry.do(ctx, r.log, "pushing the manifest of "+r.String(), func() error {
		request, err := r.request(ctx, http.MethodPut, r.root.JoinPath("manifests", r.tag.TagStr()), bytes.NewReader(manifest))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", containerdisk.MediaType)
		_, err = r.send(request, http.StatusCreated)
		return err
	})
	return hash.String(), err
}

func (r *Repository) request(ctx context.Context, method string, to *url.URL, body io.Reader) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, to.String(), body)
	if err != nil {
		return nil, fmt.Errorf("asking the registry: %w", err)
	}
	return request, nil
}

// send sends the request; any answer but the wanted one is an error.
func (r *Repository) send(request *http.Request, want int) (*http.Response, error) {
	response, err := r.client.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return nil, fmt.Errorf("%s: %w", naming(request), failed.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", naming(request), err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == want {
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)) // so that the connection is used again
		return response, nil
	}
	return response, answerOf(response)
}
