package dataimportcron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/containers/image/v5/docker/reference"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/registries"
)

// schemeDocker begins the URL of an image in a registry.
const schemeDocker = "docker://"

// image returns the digest that the first registry has for a name of those where settings have it looked for.
// Their authorities are in a ConfigMap of namespace, when from names one. Where a digest is known already, only one
// that does not have the image is passed over: what is behind one that cannot be asked may be older, and the
// DataSource would go back to that.
func (s *sources) image(ctx context.Context, namespace string, from *cdiv1.DataVolumeSourceRegistry, settings registries.Settings, known bool) (string, error) {
	named, err := nameOf(*from.URL)
	if err != nil {
		return "", err
	}
	places, err := settings.Places(named)
	if err != nil {
		return "", fmt.Errorf("looking for a registry of the image: %w", err)
	}
	by, err := s.way(ctx, namespace, ptr.Deref(from.CertConfigMap, ""))
	if err != nil {
		return "", err
	}
	var failed error
	for n, place := range places {
		digest, err := s.imageAt(ctx, place, by, len(places)-n)
		switch {
		case err == nil:
			return digest, nil
		case failed == nil:
			failed = err
		default:
			failed = fmt.Errorf("%w; before that: %w", err, failed)
		}
		if known && !withheld(err) {
			break
		}
	}
	return "", failed
}

// imageAt returns the digest that a registry has for an image. It is one of left that share the time until ctx ends,
// and gets nobody's password.
func (s *sources) imageAt(ctx context.Context, place registries.Place, way way, left int) (string, error) {
	if end, bounded := ctx.Deadline(); bounded {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer stop()
	}
	what := "asking registry " + reference.Domain(place.Image) + " for the image's digest"
	connecting := s.transport(way, place.Insecure)
	defer connecting.CloseIdleConnections()
	var by http.RoundTripper = onlyTLS{connecting}
	var naming []name.Option
	if place.Insecure {
		by, naming = connecting, append(naming, name.Insecure)
	}
	image, err := name.ParseReference(place.Image.String(), naming...)
	if err != nil {
		return "", describe("reading the name of the image", err)
	}
	once := remote.WithRetryBackoff(remote.Backoff{Steps: 1}) // polls are tried again anyway
	digest, err := digestOfImage(image, remote.WithContext(ctx), remote.WithTransport(by), once)
	if err != nil {
		return "", describe(what, err)
	}
	if digest.Algorithm+":" != digestPrefix {
		return "", describe(what, errors.New("it answers with one that is no sha256"))
	}
	return digest.String(), nil
}

// digestOfImage asks a registry for a digest, and for all that it is the digest of where that is not answered as it should be.
func digestOfImage(image name.Reference, options ...remote.Option) (v1.Hash, error) {
	found, err := remote.Head(image, options...)
	if err == nil {
		return found.Digest, nil
	}
	if reason := refusal(err); !errors.Is(reason, errUnlike) {
		return v1.Hash{}, reason
	}
	whole, err := remote.Get(image, options...)
	if err != nil {
		return v1.Hash{}, refusal(err)
	}
	return whole.Digest, nil
}

// onlyTLS sends nothing without TLS, which the library would to private addresses.
type onlyTLS struct{ *http.Transport }

// RoundTrip refuses requests without TLS.
func (t onlyTLS) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, errors.New("it is spoken to with TLS only; list it in insecureRegistries to do without")
	}
	return t.Transport.RoundTrip(request) //nolint:wrapcheck // it is what it stands for
}

// Answers of a registry that does not let us have an image, whatever it has.
var (
	errNoImage  = errors.New("it has no such image")
	errPassword = errors.New("it lets nobody in without a password")
	errDenied   = errors.New("it does not let us have the image")
)

// withheld says whether a registry could be asked, and does not have the image for us.
func withheld(err error) bool {
	return errors.Is(err, errNoImage) || errors.Is(err, errPassword) || errors.Is(err, errDenied)
}

// errUnlike is why a registry has no digest for us that does something else than registries do.
var errUnlike = errors.New("it does not answer as a registry does")

// refusal is why a registry has no digest for us, without a word of its own.
func refusal(err error) error {
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		switch answer.StatusCode {
		case http.StatusNotFound:
			return errNoImage
		case http.StatusUnauthorized:
			return errPassword
		case http.StatusForbidden:
			return errDenied
		case http.StatusTooManyRequests:
			return errors.New("it was asked too often")
		case http.StatusProxyAuthRequired:
			return errProxyLogin
		}
		return errUnlike
	}
	switch failed, unsent := errors.AsType[*url.Error](err); {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("it does not answer in time")
	case unsent && (strings.HasPrefix(failed.Err.Error(), "SSRF") || strings.HasPrefix(failed.Err.Error(), "refusing")): // the library's words
		return errors.New("it sends us on to a private address")
	case unsent:
		return reached(err)
	}
	return errUnlike
}

// nameOf reads the URL of an image; without a tag it is latest.
func nameOf(address string) (reference.Named, error) {
	image, found := strings.CutPrefix(address, schemeDocker)
	if !found {
		return nil, fmt.Errorf("source.registry.url %s is not in a registry and not polled; write docker://host/path:tag", address)
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, fmt.Errorf("source.registry.url %s is no name of an image; write docker://host/path:tag: %w", address, err)
	}
	return reference.TagNameOnly(named), nil
}

// withDigest is the address of an image as of the digest, whatever its tag becomes.
func withDigest(address, digest string) (string, error) {
	named, err := nameOf(address)
	if err != nil {
		return "", err
	}
	return schemeDocker + reference.TrimNamed(named).String() + "@" + digest, nil
}
