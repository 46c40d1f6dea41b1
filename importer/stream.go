package importer

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// Stream is an image, or an archive, that somebody sends: it comes once, in order.
type Stream struct {
	io.Reader
	// Size is that of the file in bytes, -1 when nobody said it.
	Size int64
	// About is that of what the file comes in, which its progress is measured by while Size is not known.
	About int64
}

// fromSender has read read what is sent, and hears it to its last byte.
func (j *job) fromSender(ctx context.Context, read func(*bufio.Reader) error) error {
	sent := &sent{from: j.options.Stream.Reader, size: j.options.Stream.Size}
	if sent.size == 0 {
		return transfer.Errorf(transfer.WrongFormat, "nothing was sent; send a disk image, or the archive where the claim takes files")
	}
	j.progress.follow(func() transfer.Progress {
		return transfer.Progress{Done: sent.count.Load(), Total: max(sent.size, j.options.Stream.About, 0)}
	})
	err := read(bufio.NewReaderSize(sent, streamBuffer))
	if err == nil {
		err = sent.drain(ctx)
	}
	j.result.Downloaded = sent.count.Load()
	return err
}

// sent counts what comes, and says what it means that no more does.
type sent struct {
	from  io.Reader
	size  int64
	count atomic.Int64
}

func (s *sent) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	count := s.count.Add(int64(n))
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, transfer.Errorf(transfer.ConnectionLost, "the sender went away after %d bytes: %w; send the image again", count, err)
	case s.size >= 0 && count < s.size:
		return n, transfer.Errorf(transfer.ConnectionLost, "only %d of %d bytes came; send the image again", count, s.size)
	}
	return n, err //nolint:wrapcheck // io.Reader's contract: io.EOF as it is
}

// drain reads what the format has no use for: a sender that is not heard to the end does not listen.
func (s *sent) drain(ctx context.Context) error {
	_, err := io.Copy(io.Discard, &interrupted{s, ctx.Err})
	return err //nolint:wrapcheck // Read says what happened
}
