package dataimportcron

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/imageversion"
	"github.com/slipway-vm/slipway/internal/registries"
)

// sources polls web servers and registries.
type sources struct {
	live client.Reader // of ConfigMaps with certificates
	// allowed says whether an address may be asked. Users choose what is asked, from where
	// virt-controller is, so its own machine and link are not to be had.
	allowed func(netip.Addr) bool
	// proxy says how servers are reached; nil for without a proxy.
	proxy func(context.Context) (cdiconfig.ImportProxy, error)
	// bound is how long a server may take to answer; pollBound when left out.
	bound time.Duration
}

// patience is how long a server may take to answer.
func (s *sources) patience() time.Duration {
	if s.bound > 0 {
		return s.bound
	}
	return pollBound
}

// public are all addresses but those of the machine itself and of its link, where clouds have what
// only the machine should read.
func public(address netip.Addr) bool {
	address = address.Unmap()
	return !address.IsLoopback() && !address.IsUnspecified() && !address.IsLinkLocalUnicast() && !address.IsMulticast()
}

// errAddress is the answer for an address that is not allowed.
var errAddress = errors.New("its address is of this machine or its link only, which is not asked")

func (s *sources) digest(ctx context.Context, cron *cdiv1.DataImportCron, settings registries.Settings) (string, error) {
	ctx, stop := context.WithTimeout(ctx, s.patience())
	defer stop()
	source := cron.Spec.Template.Spec.Source
	switch {
	case source != nil && source.HTTP != nil && source.HTTP.Checksum != "":
		return onlyVersion(source.HTTP.Checksum), nil
	case source != nil && source.HTTP != nil:
		return s.file(ctx, cron.Namespace, source.HTTP)
	case source != nil && source.Registry != nil && source.Registry.URL != nil:
		return s.image(ctx, cron.Namespace, source.Registry, settings, cron.Annotations[AnnotationDesired] != "")
	}
	return "", errors.New("spec.template.spec.source is neither http nor registry nor pvc, and others are not polled")
}

// onlyVersion is the digest of a file with a checksum, of which there is but one version.
func onlyVersion(checksum string) string {
	checksum = strings.ToLower(checksum)
	if strings.HasPrefix(checksum, digestPrefix) {
		return checksum
	}
	return imageversion.Digest(checksum)
}

// file returns the digest of a file's version: what the server says of it, hashed.
func (s *sources) file(ctx context.Context, namespace string, from *cdiv1.DataVolumeSourceHTTP) (string, error) {
	by, err := s.way(ctx, namespace, from.CertConfigMap)
	if err != nil {
		return "", err
	}
	transport := s.transport(by, ptr.Deref(from.InsecureSkipVerify, false))
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.URL, nil)
	if err != nil {
		return "", describe("asking for the file's version", err)
	}
	request.Header.Set("Range", "bytes=0-0") // some servers refuse HEAD
	request.Header.Set("Accept-Encoding", "identity")
	for _, header := range from.ExtraHeaders {
		if name, value, ok := strings.Cut(header, ":"); ok {
			request.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", describe("asking for the file's version", reached(err))
	}
	_, err = io.CopyN(io.Discard, response.Body, 1) // an answer of the whole file is cut off
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return "", describe("asking for the file's version", err)
	}
	switch response.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
	case http.StatusProxyAuthRequired:
		return "", describe("asking for the file's version", errProxyLogin)
	default:
		return "", fmt.Errorf("asking for the file's version: the server answers %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	version := imageversion.Of(response)
	if version == "" {
		return "", errors.New("the server says neither ETag nor Last-Modified of the file, so a new one is not told from the old; give it a checksum, or use another server")
	}
	return version, nil
}

// reached is why a server was not reached, without a word of what it said: users choose the
// server, and are not to read by virt-controller what they cannot read themselves.
func reached(err error) error {
	failed, ok := errors.AsType[*url.Error](err)
	byProxy := proxyFailure(err)
	switch {
	case byProxy != nil:
		return byProxy
	case !ok:
		return errors.New("the server does not answer as it should")
	case strings.Contains(failed.Err.Error(), "malformed"):
		return errors.New("the server does not speak HTTP")
	}
	return unreached(failed.Err)
}

// unreached words a failure of the network without what is another at each try: ports of ours, and
// the addresses that a name has by turns. A cluster without a network hears of it once, not at each try.
func unreached(err error) error {
	if lookup, is := errors.AsType[*net.DNSError](err); is {
		switch {
		case lookup.IsNotFound:
			return fmt.Errorf("no name server knows %s", lookup.Name)
		case lookup.IsTimeout:
			return fmt.Errorf("no name server answers for %s in time", lookup.Name)
		}
		return fmt.Errorf("the name server does not answer for %s as it should", lookup.Name)
	}
	if broken, is := errors.AsType[*net.OpError](err); is {
		return fmt.Errorf("no connection to it: %w", broken.Err)
	}
	return err
}
