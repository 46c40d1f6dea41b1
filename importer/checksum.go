package importer

import (
	"crypto/md5"  //nolint:gosec // publishers still give such sums; it proves integrity, not origin
	"crypto/sha1" //nolint:gosec // likewise
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"hash"
	"io"
	"strings"

	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

var algorithms = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New,
}

// checksum computes the sum of a file as it comes from its server. The sum is computed
// beside the other work, in the order of the bytes.
type checksum struct {
	name string
	want []byte
	hash hash.Hash
}

// newChecksum parses "algorithm:hex"; an empty text gives nil.
func newChecksum(text string) (*checksum, error) {
	if text == "" {
		return nil, nil
	}
	name, sum, ok := strings.Cut(strings.TrimSpace(text), ":")
	name = strings.ToLower(name)
	make := algorithms[name]
	if !ok || make == nil {
		return nil, transfer.Errorf(transfer.BadRequest, "the checksum %q has no known algorithm; write md5:, sha1:, sha256: or sha512: before it", text)
	}
	want, err := hex.DecodeString(strings.TrimSpace(sum))
	h := make()
	if err != nil || len(want) != h.Size() {
		return nil, transfer.Errorf(transfer.BadRequest, "the checksum %q is not %d hexadecimal digits", text, 2*h.Size())
	}
	return &checksum{name: name, want: want, hash: h}, nil
}

// verify compares; it is called when every byte was read.
func (c *checksum) verify() error {
	got := c.hash.Sum(nil)
	if subtle.ConstantTimeCompare(got, c.want) == 1 {
		return nil
	}
	return transfer.Errorf(transfer.ChecksumMismatch,
		"the file has the checksum %s:%x, not %s:%x; it is damaged or another one: correct the checksum or the URL", c.name, got, c.name, c.want)
}

// hashed passes a stream on while its sum is computed.
type hashed struct {
	io.ReadCloser
	sum    *checksum
	beside *source.Beside
}

func hashing(r io.ReadCloser, sum *checksum) *hashed {
	return &hashed{ReadCloser: r, sum: sum, beside: source.NewBeside(sum.hash)}
}

func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.beside.Write(p[:n])
	return n, err //nolint:wrapcheck // io.Reader's contract: io.EOF as it is
}

// finish reads what nobody needed, then compares. Of a file whose size nobody said no more than maxTrailer is read.
func (h *hashed) finish(sized bool) error {
	var rest io.Reader = h
	if !sized {
		rest = atMost(h, maxTrailer, "behind the end of its disk the file has more than %d bytes; publish it without them")
	}
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return err //nolint:wrapcheck // it says what happened
	}
	h.beside.Close()
	return h.sum.verify()
}

// Close ends the goroutine too, when finish did not.
func (h *hashed) Close() error {
	h.beside.Close()
	return h.ReadCloser.Close() //nolint:wrapcheck // the caller says what it was closing
}
