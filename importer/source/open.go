package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// probeSize is how much the first request asks for.
const probeSize = 64 << 10

type counter struct{ atomic.Int64 }

// identity is what tells one version of a file from another.
type identity struct {
	etag     string
	modified string
	size     int64
}

// Open asks for the first bytes, with a GET, for some servers refuse HEAD: it learns the
// size, whether ranges work, and what tells a changed file.
func Open(ctx context.Context, options Options) (*HTTP, error) {
	h, err := newHTTP(options)
	if err != nil {
		return nil, err
	}
	err = h.retry(ctx, time.Now(), func() error { return h.probe(ctx) })
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (h *HTTP) probe(ctx context.Context) error {
	response, err := h.get(ctx, 0, probeSize)
	if other, ok := errors.AsType[*elsewhere](err); ok {
		if bucket, signs := h.options.Signer.(*S3); signs && bucket.move(other.region) {
			response, err = h.get(ctx, 0, probeSize)
		}
	}
	if err != nil {
		return err
	}
	h.identity = identity{etag: response.Header.Get("Etag"), modified: response.Header.Get("Last-Modified"), size: -1}
	switch response.StatusCode {
	case http.StatusPartialContent:
		_, total, err := contentRange(response)
		if err != nil {
			response.Body.Close()
			return err
		}
		h.ranged = total >= 0
		h.size = total
		h.identity.size = total
		h.validator = validator(response)
		if !h.ranged {
			// Ranges of a file of unknown size: ask again, for the whole.
			response.Body.Close()
			if response, err = h.get(ctx, 0, -1); err != nil {
				return err
			}
			h.first = response
			return nil
		}
		_, _ = io.Copy(io.Discard, response.Body) // keeps the connection; a failure only costs a new one
		if err := response.Body.Close(); err != nil {
			return h.classify(err)
		}
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		response.Body.Close()
		h.size = 0
		return transfer.Errorf(transfer.WrongFormat, "the file at %s is empty", h.Name())
	default:
		h.size = response.ContentLength
		h.first = response
		return nil
	}
}

// validator returns what If-Range takes: a strong ETag, else the date of the last change.
func validator(response *http.Response) string {
	if tag := response.Header.Get("Etag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		return tag
	}
	return response.Header.Get("Last-Modified")
}

// get requests length bytes at off, or the whole file when length is negative. Answers other
// than success are errors. The caller closes the body.
func (h *HTTP) get(ctx context.Context, off, length int64) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url.String(), nil)
	if err != nil {
		return nil, transfer.Errorf(transfer.BadRequest, "the URL cannot be requested: %w", err)
	}
	for _, headers := range []http.Header{h.headers, h.secrets} {
		for name, values := range headers {
			request.Header[name] = values
			if name == "Host" {
				request.Host = values[0]
			}
		}
	}
	if h.options.Username != "" || h.options.Password != "" {
		request.SetBasicAuth(h.options.Username, h.options.Password)
	}
	if length >= 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+length-1))
		if h.validator != "" {
			request.Header.Set("If-Range", h.validator)
		}
	}
	if h.options.Signer != nil {
		if err := h.options.Signer.Sign(request); err != nil {
			return nil, h.classify(err)
		}
	}
	// Not signed, for proxies change them.
	setDefault(request.Header, "User-Agent", "slipway-importer")
	setDefault(request.Header, "Accept-Encoding", "identity")
	response, err := h.client.Do(request)
	if err != nil {
		return nil, h.classify(err)
	}
	if err := h.checkStatus(response); err != nil {
		response.Body.Close()
		return nil, err
	}
	return response, nil
}

func setDefault(header http.Header, name, value string) {
	if header.Get(name) == "" {
		header.Set(name, value)
	}
}

// checkStatus turns an answer that is no success into an error with a reason.
func (h *HTTP) checkStatus(response *http.Response) error {
	code := response.StatusCode
	if code == http.StatusOK || code == http.StatusPartialContent || code == http.StatusRequestedRangeNotSatisfiable {
		return nil
	}
	said, region := bucketError(response)
	err := h.refusal(code, response.Status+said)
	if region != "" {
		return &elsewhere{err, region}
	}
	return err
}

// refusal is the error of an answer of code, which is no success.
func (h *HTTP) refusal(code int, status string) error {
	switch {
	case code == http.StatusNotFound || code == http.StatusGone:
		return transfer.Errorf(transfer.NotFound, "%s answers %s; correct the URL or put the file there", h.Name(), status)
	case code == http.StatusProxyAuthRequired:
		return refusedByProxy(h.Name(), code)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return transfer.Errorf(transfer.Unauthorized, "%s answers %s; check secretRef and the file's permissions", h.Name(), status)
	case code == http.StatusPreconditionFailed:
		return h.changed("it no longer matches")
	case code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		return &temporary{transfer.Errorf(transfer.SourceFailed, "%s answers %s; look into the server's log", h.Name(), status)}
	}
	return transfer.Errorf(transfer.SourceFailed, "%s answers %s, not a file; check the URL", h.Name(), status)
}

// same checks that response is of the file that Open saw, from off on.
func (h *HTTP) same(response *http.Response, off int64) error {
	switch response.StatusCode {
	case http.StatusOK:
		return h.changed("the server sends the whole of another version")
	case http.StatusRequestedRangeNotSatisfiable:
		return h.changed("it is shorter now")
	}
	start, total, err := contentRange(response)
	if err != nil {
		return err
	}
	switch {
	case total >= 0 && total != h.identity.size:
		return h.changed(fmt.Sprintf("it had %d bytes, now %d", h.identity.size, total))
	case h.identity.etag != "" && response.Header.Get("Etag") != h.identity.etag:
		return h.changed("its ETag is another one")
	case h.identity.etag == "" && response.Header.Get("Last-Modified") != h.identity.modified:
		return h.changed("its Last-Modified is another one")
	case start != off:
		return transfer.Errorf(transfer.SourceFailed, "%s was asked for bytes at %d and sends those at %d", h.Name(), off, start)
	}
	return nil
}

func (h *HTTP) changed(how string) error {
	return transfer.Errorf(transfer.SourceChanged, "the file at %s changed while it was read: %s; the import begins anew", h.Name(), how)
}

// contentRange reads "bytes 0-99/1000"; total is -1 when it is "*".
func contentRange(response *http.Response) (start, total int64, err error) {
	text := response.Header.Get("Content-Range")
	bad := transfer.Errorf(transfer.SourceFailed, "the server's Content-Range %q cannot be read", text)
	rest, ok := strings.CutPrefix(text, "bytes ")
	if !ok {
		return 0, 0, bad
	}
	span, size, ok := strings.Cut(rest, "/")
	first, _, ok2 := strings.Cut(span, "-")
	if !ok || !ok2 {
		return 0, 0, bad
	}
	if start, err = strconv.ParseInt(first, 10, 64); err != nil {
		return 0, 0, bad
	}
	if size == "*" {
		return start, -1, nil
	}
	if total, err = strconv.ParseInt(size, 10, 64); err != nil || total < 0 {
		return 0, 0, bad
	}
	return start, total, nil
}

// temporary marks an error after which the same request may succeed.
type temporary struct{ error }

func (t *temporary) Unwrap() error { return t.error }

// retry is retry with the source's own patience.
func (h *HTTP) retry(ctx context.Context, since time.Time, attempt func() error) error {
	return retry(ctx, since, h.options.RetryFor, attempt)
}

// retry calls attempt until it succeeds, fails for good, or patience has passed since the
// last progress. Pauses grow from 0.2 s to 10 s.
func retry(ctx context.Context, since time.Time, patience time.Duration, attempt func() error) error {
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		err := attempt()
		var again *temporary
		if err == nil || !errors.As(err, &again) || ctx.Err() != nil {
			return err
		}
		if time.Since(since)+pause > patience {
			return fmt.Errorf("%w (tried again for %s)", err, patience)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("reading the source: %w", ctx.Err())
		case <-timer.C:
		}
	}
}
