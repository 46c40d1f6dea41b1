package dataimportcron

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	imagetypes "github.com/containers/image/v5/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/registries"
)

// schemeDocker begins the URL of an image in a registry.
const schemeDocker = "docker://"

// image returns the digest that the first registry has for a name of those where settings have it looked for.
// Their authorities are in a ConfigMap of namespace, when from names one.
func (s *sources) image(ctx context.Context, namespace string, from *cdiv1.DataVolumeSourceRegistry, settings registries.Settings) (string, error) {
	named, err := nameOf(*from.URL)
	if err != nil {
		return "", err
	}
	proxy, err := s.way(ctx)
	if err != nil {
		return "", err
	}
	authorities, err := s.authoritiesFolder(ctx, namespace, ptr.Deref(from.CertConfigMap, ""), proxy.Authorities)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(authorities) }() // nothing in it is secret, and it is small
	places, err := settings.Places(named)
	if err != nil {
		return "", fmt.Errorf("looking for a registry of the image: %w", err)
	}
	var failed error
	for n, place := range places {
		digest, err := s.imageAt(ctx, place, proxy, authorities, len(places)-n)
		switch {
		case err == nil:
			return digest, nil
		case failed == nil:
			failed = err
		default:
			failed = fmt.Errorf("%w; before that: %w", err, failed)
		}
	}
	return "", failed
}

// imageAt returns the digest that a registry has for an image. It is one of left that share the time until ctx ends,
// and is trusted for a certificate of the folder authorities, too, if there is one. It gets nobody's password.
func (s *sources) imageAt(ctx context.Context, place registries.Place, proxy cdiconfig.ImportProxy, authorities string, left int) (string, error) {
	if end, bounded := ctx.Deadline(); bounded {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer stop()
	}
	host := reference.Domain(place.Image)
	by, err := s.toRegistry(ctx, host, place.Insecure, proxy)
	if err != nil {
		return "", describe("asking registry "+host+" for the image's digest", err)
	}
	image, err := docker.NewReference(place.Image)
	if err != nil {
		return "", describe("reading the name of the image", err)
	}
	system := &imagetypes.SystemContext{ // without a registries.conf and passwords of this machine's
		SystemRegistriesConfPath: os.DevNull, SystemRegistriesConfDirPath: os.DevNull,
		DockerInsecureSkipTLSVerify: imagetypes.NewOptionalBool(place.Insecure), DockerCertPath: authorities,
		DockerAuthConfig: &imagetypes.DockerAuthConfig{}, DockerProxyURL: by,
	}
	digest, err := docker.GetDigest(ctx, system, image)
	if err != nil {
		return "", describe("asking registry "+host+" for the image's digest", refusal(err))
	}
	if digest.Algorithm().String()+":" != digestPrefix || digest.Validate() != nil {
		return "", fmt.Errorf("registry %s answers with a digest that is no sha256", host)
	}
	return digest.String(), nil
}

// authoritiesFolder makes a folder of the certificates in a ConfigMap and of those of the proxy, as the library wants
// them; none when there are none.
func (s *sources) authoritiesFolder(ctx context.Context, namespace, name string, ofProxy []byte) (string, error) {
	certificates, err := s.authorities(ctx, namespace, name)
	if err != nil || len(certificates)+len(ofProxy) == 0 {
		return "", err
	}
	folder, err := os.MkdirTemp(s.scratch, "authorities-")
	if err != nil {
		return "", fmt.Errorf("making a folder for certificates: %w", err)
	}
	for number, pem := range append(slices.Collect(maps.Values(certificates)), string(ofProxy)) {
		if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(number)+".crt"), []byte(pem), 0o600); err != nil {
			return "", errors.Join(fmt.Errorf("keeping a certificate of an authority: %w", err), os.RemoveAll(folder))
		}
	}
	return folder, nil
}

// refusal is why a registry has no digest for us, without a word of its own.
func refusal(err error) error {
	if _, ok := errors.AsType[docker.ErrUnauthorizedForCredentials](err); ok {
		return errors.New("it lets nobody in without a password")
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return reached(err)
	}
	switch text := err.Error(); {
	case errors.Is(err, docker.ErrTooManyRequests):
		return errors.New("it was asked too often")
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("it does not answer in time")
	case strings.Contains(text, "manifest unknown"), strings.Contains(text, "name unknown"), strings.Contains(text, "StatusCode: 404"):
		return errors.New("it has no such image")
	case strings.Contains(text, "access to the resource is denied"), strings.Contains(text, "StatusCode: 403"):
		return errors.New("it does not let us have the image")
	}
	return errors.New("it does not answer as a registry does")
}

// nameOf reads the URL of an image; without a tag it is latest.
func nameOf(address string) (reference.Named, error) {
	name, found := strings.CutPrefix(address, schemeDocker)
	if !found {
		return nil, fmt.Errorf("source.registry.url %s is not in a registry and not polled; write docker://host/path:tag", address)
	}
	named, err := reference.ParseNormalizedNamed(name)
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

// checkHost refuses a host of which an address is not allowed.
func (s *sources) checkHost(ctx context.Context, host string) error {
	name := host
	if only, _, err := net.SplitHostPort(host); err == nil {
		name = only
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", strings.Trim(name, "[]"))
	if err != nil {
		return unreached(err)
	}
	for _, address := range addresses {
		if !s.allowed(address) {
			return errAddress
		}
	}
	return nil
}
