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

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/imageversion"
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
	h.version = imageversion.Of(response)
	h.identity = identity{etag: response.Header.Get("Etag"), modified: response.Header.Get("Last-Modified"), size: -1}
	switch response.StatusCode {
	case http.StatusPartialContent:
		return h.probed(ctx, response)
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

// probed learns from the first bytes of a server that knows ranges.
func (h *HTTP) probed(ctx context.Context, response *http.Response) error {
	span, err := contentRange(response)
	if err == nil && span.start != 0 {
		err = h.misplaced(0, span.start)
	}
	if err != nil {
		response.Body.Close()
		return err
	}
	h.ranged = span.total >= 0
	h.size = span.total
	h.identity.size = span.total
	h.validator = validator(response)
	if h.ranged {
		h.leave(response.Body, probeSize)
		return nil
	}
	// Ranges of a file of unknown size: ask again, for the whole.
	response.Body.Close()
	h.first, err = h.whole(ctx)
	return err
}

// drainLimit is how much is read of a body behind what is wanted of it.
const drainLimit = 64 << 10

// leave closes a body of which length bytes were asked for and are not wanted. It is read to its end, so that its
// connection is used again, unless that is far or does not come soon.
func (h *HTTP) leave(body io.ReadCloser, length int64) {
	late := time.AfterFunc(h.options.IdleTimeout, func() { _ = body.Close() })
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, body, length+drainLimit) // a failure only costs a new connection
	_ = body.Close()                                     // likewise
}

// whole requests the whole file. The caller closes the body.
func (h *HTTP) whole(ctx context.Context) (*http.Response, error) {
	response, err := h.get(ctx, 0, -1)
	if err == nil && response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, transfer.Errorf(transfer.SourceFailed, "%s was asked for the whole file and answers %s; look into the server's log", h.Name(), response.Status)
	}
	return response, err
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
	logger, start := log.FromContext(ctx).V(4), time.Now()
	response, err := h.client.Do(request)
	if err != nil {
		err = h.classify(err)
		logger.Info("No answer of the server", "offset", off, "length", length, "milliseconds", time.Since(start).Milliseconds(), "because", err.Error())
		return nil, err
	}
	logger.Info("Answer of the server", "offset", off, "length", length, "milliseconds", time.Since(start).Milliseconds(), "status", response.Status)
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

// same checks that response is of the file that Open saw, from off on, and returns where its part of the file ends.
func (h *HTTP) same(response *http.Response, off int64) (end int64, err error) {
	switch response.StatusCode {
	case http.StatusOK:
		return 0, h.changed("the server sends the whole of another version")
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, h.changed("it is shorter now")
	}
	span, err := contentRange(response)
	if err != nil {
		return 0, err
	}
	switch {
	case span.total >= 0 && span.total != h.identity.size:
		return 0, h.changed(fmt.Sprintf("it had %d bytes, now %d", h.identity.size, span.total))
	case h.identity.etag != "" && response.Header.Get("Etag") != h.identity.etag:
		return 0, h.changed("its ETag is another one")
	case h.identity.etag == "" && response.Header.Get("Last-Modified") != h.identity.modified:
		return 0, h.changed("its Last-Modified is another one")
	case span.start != off:
		return 0, h.misplaced(off, span.start)
	}
	return span.end, nil
}

func (h *HTTP) changed(how string) error {
	return transfer.Errorf(transfer.SourceChanged, "the file at %s changed while it was read: %s; the import begins anew", h.Name(), how)
}

// misplaced is the error of a server that sends bytes that nobody asked for.
func (h *HTTP) misplaced(asked, sent int64) error {
	return transfer.Errorf(transfer.SourceFailed, "%s was asked for bytes at %d and sends those at %d; its server must answer range requests rightly or not at all", h.Name(), asked, sent)
}

// span is what a Content-Range says: where the body's first byte stands in the file, where its last one ends, and the
// file's size, -1 when the server does not say it.
type span struct{ start, end, total int64 }

// contentRange reads "bytes 0-99/1000" and "bytes 0-99/*".
func contentRange(response *http.Response) (span, error) {
	text := response.Header.Get("Content-Range")
	bad := transfer.Errorf(transfer.SourceFailed, "the server's Content-Range %q cannot be read; it must answer range requests rightly or not at all", text)
	rest, ok := strings.CutPrefix(text, "bytes ")
	part, size, ok2 := strings.Cut(rest, "/")
	first, last, ok3 := strings.Cut(part, "-")
	if !ok || !ok2 || !ok3 {
		return span{}, bad
	}
	start, err := offset(first)
	end, err2 := offset(last)
	total, err3 := int64(-1), error(nil)
	if size != "*" {
		total, err3 = offset(size)
	}
	if errors.Join(err, err2, err3) != nil || end < start || total >= 0 && end >= total {
		return span{}, bad
	}
	return span{start, end + 1, total}, nil
}

// offset reads the digits of a place in a file.
func offset(digits string) (int64, error) {
	n, err := strconv.ParseUint(digits, 10, 62) // which takes no sign
	return int64(n), err                        //nolint:wrapcheck // the caller shows the whole
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

// Version is the digest of the file's version by what the server says of it, as imageversion has it; empty where that is nothing.
func (h *HTTP) Version() string { return h.version }

// Close ends the use of a file of which nothing more is read.
func (h *HTTP) Close() {
	if h.first != nil {
		_ = h.first.Body.Close() // nothing was read that could be lost
		h.first = nil
	}
	h.client.CloseIdleConnections()
}
