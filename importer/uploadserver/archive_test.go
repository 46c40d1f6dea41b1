package uploadserver

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
)

// archiveOf packs a file.
func archiveOf(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// What is no whole archive, or leads out of the claim, leaves nothing; the next one is taken.
func TestAnArchiveIsUnpackedAsItComes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claim")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := New(importer.Options{Archive: true, Target: target.Options{Path: dir, Size: 1 << 20}}, upload.ClientName, importer.NewProgress(), func(transfer.Result) error { return nil })
	content := strings.Repeat("a slipway is a ramp\n", 20_000)
	whole := archiveOf(t, "docs/ramp", content)
	for name, c := range map[string]struct {
		sent []byte
		said int
		code int
		want string
	}{
		"half of it":              {whole[:len(whole)/2], len(whole), http.StatusInternalServerError, "send the image again"},
		"nothing":                 {nil, 0, http.StatusBadRequest, "nothing was sent"},
		"a text":                  {[]byte(content), len(content), http.StatusBadRequest, "no tar archive"},
		"a way out":               {archiveOf(t, "../ramp", content), -1, http.StatusBadRequest, "leads out"},
		"more than the claim has": {archiveOf(t, "ramp", strings.Repeat(content, 4)), -1, http.StatusBadRequest, "1048576"},
	} {
		if answer := s.answer(bytes.NewReader(c.sent), int64(c.said)); answer.Code != c.code || !strings.Contains(answer.Body.String(), c.want) {
			t.Errorf("%s: %d %s, want %d %s", name, answer.Code, answer.Body, c.code, c.want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", name, left, err)
		}
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(whole); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	size := int64(packed.Len())
	if answer := s.answer(&packed, size); answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	if result := <-s.Finished(); result.Format != "tar+gz" || result.Digest != "" || result.Downloaded != size {
		t.Errorf("%+v", result)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "docs", "ramp")); err != nil || string(got) != content {
		t.Errorf("the file is another one: %v", err)
	}
}
