package source

import (
	"context"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/containers/image/v5/pkg/blobinfocache/none"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// blob is a part of an image that is read in order and hashed meanwhile. The library goes on
// after a broken connection where the registry answers range requests.
type blob struct {
	image  *Registry
	info   types.BlobInfo
	body   io.ReadCloser
	sum    hash.Hash
	beside *Beside
	cause  func() error // why the request was ended, nil while it was not
	read   int64
	err    error // why there is no more
}

// openBlob begins to download. An image's own word on where else its parts lie is not taken:
// the importer asks the registry, and nobody whom an image names.
func (r *Registry) openBlob(ctx context.Context, info types.BlobInfo) (*blob, error) {
	if err := info.Digest.Validate(); err != nil {
		return nil, transfer.Errorf(transfer.InvalidImage, "a layer of %s has no digest that can be checked: %w; push the image anew", r.Name(), err)
	}
	info.URLs = nil
	var b *blob
	err := retry(ctx, time.Now(), r.options.RetryFor, func() (err error) {
		b, err = r.requestBlob(ctx, info)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.total.Add(max(info.Size, 0))
	return b, nil
}

func (r *Registry) requestBlob(ctx context.Context, info types.BlobInfo) (*blob, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	answer := time.AfterFunc(r.options.IdleTimeout, func() { cancel(errIdle) })
	body, size, err := r.source.GetBlob(ctx, info, none.NoCache)
	answer.Stop()
	if err != nil {
		err = r.classify(ctx, err)
		cancel(nil)
		return nil, err
	}
	if info.Size < 0 {
		info.Size = size
	}
	sum := info.Digest.Algorithm().Hash()
	return &blob{
		image: r, info: info, sum: sum, beside: NewBeside(sum), cause: func() error { return context.Cause(ctx) },
		body: watch(ctx, body, cancel, r.options.IdleTimeout, r.limit),
	}, nil
}

// Read reads on. Only io.EOF itself is the end.
func (b *blob) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.body.Read(p)
	b.read += int64(n)
	b.image.counter.Add(int64(n))
	b.beside.Write(p[:n])
	switch {
	case b.info.Size >= 0 && b.read > b.info.Size:
		b.err = transfer.Errorf(transfer.ChecksumMismatch, "the registry sends more than the %d bytes of layer %s of %s; push the image anew", b.info.Size, b.info.Digest, b.image.Name())
	case err == io.EOF && b.read < b.info.Size: //nolint:errorlint // see above
		b.err = b.image.lost(fmt.Sprintf("layer %s ended after %d of its %d bytes", b.info.Digest, b.read, b.info.Size), io.ErrUnexpectedEOF)
	case err == io.EOF: //nolint:errorlint // see above
		b.err = err
	case err != nil:
		b.err = b.image.lost(fmt.Sprintf("layer %s broke at byte %d", b.info.Digest, b.read), because(b.cause(), err))
	}
	return n, b.err
}

// verify reads to the end and compares the digest.
func (b *blob) verify() error {
	if _, err := io.Copy(io.Discard, b); err != nil {
		return err //nolint:wrapcheck // Read says what happened
	}
	b.beside.Close()
	if digest.NewDigest(b.info.Digest.Algorithm(), b.sum) == b.info.Digest {
		return nil
	}
	return transfer.Errorf(transfer.ChecksumMismatch,
		"the registry sends another content for layer %s of %s than its digest says; it is damaged or another one: push the image anew", b.info.Digest, b.image.Name())
}

func (b *blob) close() error {
	b.beside.Close()
	if err := b.body.Close(); err != nil {
		return fmt.Errorf("ending the download of layer %s: %w", b.info.Digest, err)
	}
	return nil
}
