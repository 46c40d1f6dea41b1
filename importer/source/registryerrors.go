package source

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"syscall"

	"github.com/containers/image/v5/docker"
	"github.com/docker/distribution/registry/api/errcode"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// classify gives an error of the library its reason. Addresses that a registry redirects to are
// left out of messages, for they may hold signatures that open them.
func (r *Registry) classify(ctx context.Context, err error) error {
	if typed, ok := errors.AsType[*transfer.Error](err); ok {
		return typed
	}
	if failed := byProxy(r.Name(), err); failed != nil && ctx.Err() == nil {
		return failed
	}
	err = because(context.Cause(ctx), err)
	if status := statusOf(err); status != 0 {
		return r.answered(status, err)
	}
	var dns *net.DNSError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return transfer.Errorf(transfer.TLSFailure, "the registry of %s has no TLS; give it a certificate, and its authority in certConfigMap, or name the registry in insecureRegistries of the HyperConverged object", r.Name())
	case isTLS(err):
		return transfer.Errorf(transfer.TLSFailure, "TLS with the registry of %s fails: %w; give its certificate authority in certConfigMap, or correct the URL", r.Name(), err)
	case errors.Is(err, context.Canceled):
		return transfer.Errorf(transfer.ConnectionLost, "reading %s was cut off: %w", r.Name(), err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return transfer.Errorf(transfer.ConnectionLost, "the registry of %s is not known: %w; check the URL", r.Name(), err)
	case network(err):
		return &temporary{r.lost("the connection fails", err)}
	}
	return transfer.Errorf(transfer.SourceFailed, "%s cannot be read as an image: %w; check the URL", r.Name(), err)
}

// answered gives an answer that is no success its reason.
func (r *Registry) answered(status int, err error) error {
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		return transfer.Errorf(transfer.NotFound, "the registry has no image %s: %w; correct the URL or push the image", r.Name(), err)
	case status == http.StatusProxyAuthRequired:
		return refusedByProxy(r.Name(), status)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return transfer.Errorf(transfer.Unauthorized, "the registry does not give %s: %w; check secretRef and the image's permissions", r.Name(), err)
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return &temporary{transfer.Errorf(transfer.SourceFailed, "the registry of %s answers with an error: %w; look into its log", r.Name(), err)}
	}
	return transfer.Errorf(transfer.SourceFailed, "the registry of %s answers with an error: %w; check the URL", r.Name(), err)
}

func (r *Registry) lost(what string, err error) error {
	return transfer.Errorf(transfer.ConnectionLost, "reading %s: %s: %w; the import begins anew", r.Name(), what, err)
}

// because returns the cause of a request's end rather than the end itself, and no address.
func because(cause, err error) error {
	if cause != nil {
		return cause
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return request.Err
	}
	return err
}

// statusText is how the library prints the status of an answer that is no JSON.
var statusText = regexp.MustCompile(`StatusCode: ([0-9]{3})\b`)

// statusOf returns the status of a registry's answer, or 0 when err is something else.
func statusOf(err error) int {
	if _, ok := errors.AsType[docker.ErrUnauthorizedForCredentials](err); ok {
		return http.StatusUnauthorized
	}
	if errors.Is(err, docker.ErrTooManyRequests) {
		return http.StatusTooManyRequests
	}
	if unexpected, ok := errors.AsType[docker.UnexpectedHTTPStatusError](err); ok {
		return unexpected.StatusCode
	}
	var coded errcode.ErrorCoder
	if errors.As(err, &coded) {
		return coded.ErrorCode().Descriptor().HTTPStatusCode
	}
	if match := statusText.FindStringSubmatch(err.Error()); match != nil {
		status, _ := strconv.Atoi(match[1]) // three digits
		return status
	}
	return 0
}

// network reports whether the way to the registry failed.
func network(err error) bool {
	var failed net.Error
	return errors.As(err, &failed) || errors.Is(err, errIdle) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED)
}
