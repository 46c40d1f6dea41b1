package source

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"testing"
)

// What is written in parts of any size is hashed to its end, whether or not that fills a buffer.
func TestBesideHashesAllThatIsWritten(t *testing.T) {
	for _, size := range []int{0, 1, besideBuffer - 1, besideBuffer, besideBuffer + 1, 9 * besideBuffer, 9*besideBuffer + 77} {
		for _, part := range []int{16 << 10, 100_000, besideBuffer, 3 * besideBuffer} {
			data := make([]byte, size)
			rand.NewChaCha8([32]byte{byte(part)}).Read(data) //nolint:errcheck // it cannot fail
			sum := sha256.New()
			beside := NewBeside(sum)
			for rest := data; len(rest) > 0; {
				n := min(part, len(rest))
				beside.Write(rest[:n])
				clear(rest[:n]) // it has a copy
				rest = rest[n:]
			}
			beside.Close()
			beside.Close()
			beside.Write([]byte("too late"))
			rand.NewChaCha8([32]byte{byte(part)}).Read(data) //nolint:errcheck // it cannot fail
			if want := sha256.Sum256(data); !bytes.Equal(sum.Sum(nil), want[:]) {
				t.Errorf("%d bytes in parts of %d: another sum", size, part)
			}
		}
	}
}
