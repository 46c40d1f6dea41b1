package image

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// asked notes the longest read that it is asked for.
type asked struct {
	io.Reader

	most int
}

func (a *asked) Read(p []byte) (int, error) {
	a.most = max(a.most, len(p))
	return a.Reader.Read(p)
}

// A stream is asked for as much as its reader has room for: in small pieces it would be slow.
func TestADiskInOrderIsReadAsItsReaderWants(t *testing.T) {
	const room = 1 << 20
	for _, size := range []int{3 << 20, 3<<20 + 1, 100, 512, 513} {
		stream := &asked{Reader: bytes.NewReader(make([]byte, size))}
		from, buffer, came := NewUnfooted(stream), make([]byte, room), 0
		for {
			n, err := from.Read(buffer)
			came += n
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if came != size || stream.most != room {
			t.Errorf("%d of %d bytes came, at most %d of them asked for at a time", came, size, stream.most)
		}
	}
}
