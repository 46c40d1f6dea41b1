package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/slipway-vm/slipway/tasks/disk-uploader/containerdisk"
)

// Produce writes a blob to w and returns what it wrote. It may be called again from the start.
type Produce func(w io.Writer) (containerdisk.Layer, error)

// Reasons why an upload has to begin anew or otherwise.
var (
	errLost   = errors.New("the registry knows nothing of the upload any more")
	errChunks = errors.New("the registry takes no chunks")
	errSource = errors.New("making the blob")
)

// restarts is how often a blob is sent anew from its first byte.
const restarts = 3

// Stream pushes the blob that produce makes.
func (r *Repository) Stream(ctx context.Context, produce Produce) (containerdisk.Layer, error) {
	chunked := true
	for began := 1; ; began++ {
		var layer containerdisk.Layer
		var err error
		if chunked {
			layer, err = r.upload(ctx, produce)
		} else {
			layer, err = r.uploadWhole(ctx, produce)
		}
		switch {
		case err == nil:
			return layer, nil
		case errors.Is(err, errChunks) && chunked:
			r.log.Info("sending in one stream", "reason", err.Error())
			chunked = false
		case began >= restarts || ctx.Err() != nil || !errors.Is(err, errLost):
			return containerdisk.Layer{}, fmt.Errorf("pushing to %s: %w", r, err)
		default:
			r.log.Warn("sending anew from the start", "reason", err.Error())
		}
	}
}

// begin asks for an upload and returns where it goes and the least size of a chunk.
func (r *Repository) begin(ctx context.Context) (*session, error) {
	s := &session{repository: r, ctx: ctx, chunk: r.chunk}
	err := r.retry.do(ctx, r.log, "beginning an upload", func() error {
		request, err := r.request(ctx, http.MethodPost, r.root.JoinPath("blobs", "uploads/"), nil)
		if err != nil {
			return err
		}
		response, err := r.send(request, http.StatusAccepted)
		if err != nil {
			return err
		}
		if least, err := strconv.Atoi(response.Header.Get("OCI-Chunk-Min-Length")); err == nil {
			s.chunk = max(s.chunk, min(least, maxChunk))
		}
		return s.moved(response)
	})
	return s, err
}

// maxChunk bounds what a registry may make us hold in memory.
const maxChunk = 128 << 20

// upload sends the blob in chunks.
func (r *Repository) upload(ctx context.Context, produce Produce) (containerdisk.Layer, error) {
	s, err := r.begin(ctx)
	if err != nil {
		return containerdisk.Layer{}, err
	}
	layer, err := produce(s)
	if s.failed != nil {
		return containerdisk.Layer{}, s.failed
	}
	if err == nil {
		err = s.flush()
	}
	if err != nil {
		return containerdisk.Layer{}, err
	}
	return layer, s.commit(layer.Blob)
}

// session is an upload that the registry has begun. It is the writer of a blob's bytes.
type session struct {
	repository *Repository
	ctx        context.Context //nolint:containedctx // a writer's Write takes none
	location   *url.URL
	chunk      int
	held       bytes.Buffer
	sent       int64
	failed     error // why a chunk could not be sent
}

// Write keeps bytes until they are a chunk, and sends it.
func (s *session) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if s.held.Len() > s.chunk/16 && s.held.Cap() < s.chunk {
			s.held.Grow(s.chunk - s.held.Len()) // once, and to no more than a chunk
		}
		n := min(len(rest), s.chunk-s.held.Len())
		s.held.Write(rest[:n])
		rest = rest[n:]
		if s.held.Len() == s.chunk {
			if err := s.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// flush sends what is kept.
func (s *session) flush() error {
	if s.held.Len() == 0 {
		return nil
	}
	r := s.repository
	chunk, first := s.held.Bytes(), true
	s.failed = r.retry.do(s.ctx, r.log, fmt.Sprintf("sending bytes from %d on", s.sent), func() error {
		if !first {
			taken, err := s.taken(len(chunk))
			if err != nil {
				return err
			}
			chunk = chunk[taken:]
			s.sent += int64(taken)
			if len(chunk) == 0 {
				return nil
			}
		}
		err := s.patch(chunk)
		if first {
			first = false
			return refused(err)
		}
		if slices.Contains([]int{http.StatusNotFound, http.StatusRequestedRangeNotSatisfiable}, statusOf(err)) {
			return fmt.Errorf("%w: %w", errLost, err)
		}
		return err
	})
	if s.failed == nil {
		s.sent += int64(len(chunk))
		s.held.Reset()
	}
	return s.failed
}

// patch sends a chunk.
func (s *session) patch(chunk []byte) error {
	request, err := s.repository.request(s.ctx, http.MethodPatch, s.location, bytes.NewReader(chunk))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	request.Header.Set("Content-Range", fmt.Sprintf("%d-%d", s.sent, s.sent+int64(len(chunk))-1))
	response, err := s.repository.send(request, http.StatusAccepted)
	if err != nil {
		return err
	}
	return s.moved(response)
}

// refused marks the answers of registries that take no chunks, or none so large.
func refused(err error) error {
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusRequestedRangeNotSatisfiable, http.StatusNotImplemented:
		return fmt.Errorf("%w: %w", errChunks, err)
	}
	return err
}

// taken asks how much of a chunk of n bytes the registry took before the connection broke. A
// registry that does not tell is sent the whole chunk again.
func (s *session) taken(n int) (int, error) {
	request, err := s.repository.request(s.ctx, http.MethodGet, s.location, nil)
	if err != nil {
		return 0, err
	}
	response, err := s.repository.send(request, http.StatusNoContent)
	if statusOf(err) != 0 && !passing(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var from, to int64
	if _, err := fmt.Sscanf(response.Header.Get("Range"), "%d-%d", &from, &to); err != nil {
		return 0, nil //nolint:nilerr // it does not tell
	}
	if to > 0 { // nothing at all is told as 0-0
		to++
	}
	if to < s.sent || to > s.sent+int64(n) {
		return 0, fmt.Errorf("%w: it has %d bytes, and %d were sent", errLost, to, s.sent)
	}
	return int(to - s.sent), s.moved(response)
}

// moved takes the place of the next request from an answer.
func (s *session) moved(response *http.Response) error {
	location := response.Header.Get("Location")
	if location == "" {
		if s.location == nil {
			return errors.New("the registry does not say where the upload goes")
		}
		return nil
	}
	next, err := response.Request.URL.Parse(location)
	if err != nil {
		return fmt.Errorf("the registry sends the upload to %q: %w", location, err)
	}
	s.location = next
	return nil
}

// commit ends the upload: the registry checks the digest.
func (s *session) commit(blob containerdisk.Blob) error {
	r := s.repository
	end := *s.location
	query := end.Query()
	query.Set("digest", blob.Digest.String())
	end.RawQuery = query.Encode()
	first := true
	return r.retry.do(s.ctx, r.log, "ending the upload", func() error {
		if !first && s.has(blob) {
			return nil
		}
		first = false
		request, err := r.request(s.ctx, http.MethodPut, &end, nil)
		if err != nil {
			return err
		}
		_, err = r.send(request, http.StatusCreated)
		if statusOf(err) == http.StatusNotFound {
			return fmt.Errorf("%w: %w", errLost, err)
		}
		return err
	})
}

// has says whether the registry has the blob, as it may when its answer was lost.
func (s *session) has(blob containerdisk.Blob) bool {
	request, err := s.repository.request(s.ctx, http.MethodHead, s.repository.root.JoinPath("blobs", blob.Digest.String()), nil)
	if err != nil {
		return false
	}
	_, err = s.repository.send(request, http.StatusOK)
	return err == nil
}

// uploadWhole sends the blob as the body of one request, of which nothing can be sent again.
func (r *Repository) uploadWhole(ctx context.Context, produce Produce) (containerdisk.Layer, error) {
	s, err := r.begin(ctx)
	if err != nil {
		return containerdisk.Layer{}, err
	}
	body, pipe := io.Pipe()
	type made struct {
		layer containerdisk.Layer
		err   error
	}
	done := make(chan made, 1)
	go func() {
		layer, err := produce(pipe)
		_ = pipe.CloseWithError(err) // it never fails
		done <- made{layer, err}
	}()
	request, err := r.request(ctx, http.MethodPatch, s.location, body)
	if err != nil {
		return containerdisk.Layer{}, errors.Join(err, body.Close())
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	response, err := r.send(request, http.StatusAccepted)
	_ = body.CloseWithError(errLost) // ends produce, if the registry did not read all
	end := <-done
	switch {
	case end.err != nil && !errors.Is(end.err, errLost):
		return containerdisk.Layer{}, fmt.Errorf("%w: %w", errSource, end.err)
	case err != nil && passing(err):
		return containerdisk.Layer{}, fmt.Errorf("%w: %w", errLost, err)
	case err != nil:
		return containerdisk.Layer{}, err
	case end.err != nil:
		return containerdisk.Layer{}, end.err
	}
	if err := s.moved(response); err != nil {
		return containerdisk.Layer{}, err
	}
	return end.layer, s.commit(end.layer.Blob)
}
