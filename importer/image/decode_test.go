package image

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// empty are streams of which nothing comes; a file may have any number of each.
var empty = map[Format]string{
	Gzip:  "1f8b08000000000000ff03000000000000000000",
	XZ:    "fd377a585a000004e6d6b446000000001cdf44211fb6f37d010000000004595a",
	Bzip2: "425a683917724538509000000000",
	Zstd:  "28b52ffd2400010000" + "99e9d851",
}

// endless is one stream after another, for ever.
type endless struct {
	stream []byte
	at     int
}

func (e *endless) Read(p []byte) (int, error) {
	for n := range p {
		p[n], e.at = e.stream[e.at], (e.at+1)%len(e.stream)
	}
	return len(p), nil
}

func TestAFileOfNothingHasAnEnd(t *testing.T) {
	for format, text := range empty {
		t.Run(string(format), func(t *testing.T) {
			stream, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			for name, in := range map[string]io.Reader{"few": bytes.NewReader(bytes.Repeat(stream, 100)), "endless": &endless{stream: stream}} {
				reader, err := decode(&packed{from: in, format: format, most: 4 << 20})
				if err != nil {
					t.Fatal(err)
				}
				n, err := io.Copy(io.Discard, reader)
				if reader.Close() != nil || n != 0 {
					t.Errorf("%s: %d bytes came of it", name, n)
				}
				refused, ok := errors.AsType[*transfer.Error](err)
				if endless := name == "endless"; endless != ok || endless && refused.Reason != transfer.InvalidImage || !endless && err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}
