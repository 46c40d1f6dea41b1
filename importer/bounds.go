package importer

import (
	"io"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// maxTrailer bounds, in bytes, what is read behind the end of what a file is for.
const maxTrailer = 64 << 20

// limited is a stream that must end within so many bytes: the few that come over the wire may be packed from very many.
type limited struct {
	from        io.Reader
	limit, left int64
	says        string
}

// atMost is the stream from, which fails with the sentence says, about limit, once it has more bytes than that.
func atMost(from io.Reader, limit int64, says string) io.Reader {
	return &limited{from, limit, limit, says}
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, transfer.Errorf(transfer.InvalidImage, l.says, l.limit)
	}
	return n, err //nolint:wrapcheck // io.Reader's contract: io.EOF as it is
}
