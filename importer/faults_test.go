package importer_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/transfer"
)

func handle(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/disk.qcow2"
}

// soonGivenUp has a source that is away tried again for a moment only.
func soonGivenUp(o *importer.Options) {
	if o.Source != nil {
		o.Source.RetryFor = 3 * time.Second
	}
	if o.Registry != nil {
		o.Registry.RetryFor = 2 * time.Second
	}
}

func TestServersThatRefuse(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		reason  transfer.Reason
		words   string
	}{
		"a file that is not there":      {status(404), transfer.NotFound, "404"},
		"a file that is gone":           {status(410), transfer.NotFound, "410"},
		"missing credentials":           {status(401), transfer.Unauthorized, "secretRef"},
		"forbidden":                     {status(403), transfer.Unauthorized, "403"},
		"a server that is out of order": {status(503), transfer.SourceFailed, "503"},
		"a redirect to itself": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, transfer.RedirectLoop, "circle"},
		"redirects without end": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		}, transfer.RedirectLoop, "10 times"},
		"an empty file": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, transfer.WrongFormat, "empty"},
		"an error page": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<!DOCTYPE html>\n<html><body>Sorry, the mirror moved</body></html>\n")
		}, transfer.WrongFormat, "<!DOCTYPE html>"},
	} {
		t.Run(name, func(t *testing.T) {
			doImport(t, handle(t, c.handler), soonGivenUp).wantFailure(t, c.reason, c.words)
		})
	}
	doImport(t, "ftp://example.com/disk.img", nil).wantFailure(t, transfer.BadRequest, "ftp")
	doImport(t, "http://127.0.0.1:1/disk.img", soonGivenUp).wantFailure(t, transfer.ConnectionLost, "127.0.0.1:1")
}

func TestBrokenTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "disk.raw", time.Time{}, bytes.NewReader(newDisk()))
	}))
	t.Cleanup(s.Close)
	url := s.URL + "/disk.raw"
	doImport(t, url, nil).wantFailure(t, transfer.TLSFailure, "certConfigMap")
	dir := t.TempDir()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	doImport(t, url, func(o *importer.Options) { o.Source.CertDir = dir }).wantDisk(t, newDisk(), diskSize)
	doImport(t, url, func(o *importer.Options) { o.Source.SkipVerify = true }).wantDisk(t, newDisk(), diskSize)
	doImport(t, url, func(o *importer.Options) { o.Source.CertDir = t.TempDir() }).wantFailure(t, transfer.BadRequest, "PEM")
	plain := handle(t, func(http.ResponseWriter, *http.Request) {})
	doImport(t, strings.Replace(plain, "http:", "https:", 1), nil).wantFailure(t, transfer.TLSFailure)
}

func TestAServerThatDiesHalfWayIsResumed(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	qcow := qcow2(t, raw, raw+".qcow2")
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(newDisk()))
	for name, c := range map[string]struct{ file, checksum string }{
		"raw": {raw, ""}, "raw with a checksum": {raw, sum}, "qcow2": {qcow, ""}, "packed": {pack(t, raw, raw+".gz", "gzip", "-c"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, filepath.Dir(raw))
			s.dieAfter = 700_000
			s.deaths.Store(12)
			got := doImport(t, s.URL+"/"+filepath.Base(c.file), func(o *importer.Options) { o.Checksum = c.checksum })
			got.wantDisk(t, newDisk(), diskSize)
			if info, _ := os.Stat(c.file); got.result.Downloaded > info.Size()*3/2 {
				t.Errorf("%d bytes were downloaded of a file of %d", got.result.Downloaded, info.Size())
			}
		})
	}
	t.Run("a server that stays away", func(t *testing.T) {
		s := serve(t, filepath.Dir(raw))
		s.dieAfter = 100_000
		s.deaths.Store(1 << 40)
		doImport(t, s.URL+"/disk.raw", func(o *importer.Options) { o.Source.RetryFor = time.Second }).wantDiskOrLost(t)
	})
	t.Run("a server without ranges", func(t *testing.T) {
		s := serve(t, filepath.Dir(raw))
		s.noRanges, s.dieAfter = true, 5<<20
		s.deaths.Store(1)
		doImport(t, s.URL+"/disk.raw", nil).wantFailure(t, transfer.ConnectionLost, "cannot continue")
		doImport(t, s.URL+"/disk.raw", nil).wantDisk(t, newDisk(), diskSize)
	})
}

// wantDiskOrLost takes either end: a server that gives 100 kB per request is slow, not away.
func (i imported) wantDiskOrLost(t *testing.T) {
	t.Helper()
	if i.err == nil {
		i.wantDisk(t, newDisk(), diskSize)
		return
	}
	i.wantFailure(t, transfer.ConnectionLost)
}

func TestAServerThatFallsSilent(t *testing.T) {
	url := handle(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10485760")
		_, _ = w.Write(make([]byte, 1<<20))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	start := time.Now()
	doImport(t, url, func(o *importer.Options) { o.Source.IdleTimeout = 500 * time.Millisecond }).wantFailure(t, transfer.ConnectionLost)
	if took := time.Since(start); took > 3*time.Minute { // as soon as a busy machine lets it
		t.Errorf("it took %s to notice", took)
	}
}

func TestAFileThatChangesWhileItIsRead(t *testing.T) {
	for name, header := range map[string]string{"its ETag": "Etag", "its date": "Last-Modified"} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			url := handle(t, func(w http.ResponseWriter, r *http.Request) {
				n := requests.Add(1)
				if header == "Etag" {
					w.Header().Set("Etag", fmt.Sprintf(`"%d"`, n/4))
					http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(newDisk()))
					return
				}
				http.ServeContent(w, r, "x", time.Unix(1_700_000_000+n/4*60, 0), bytes.NewReader(newDisk()))
			})
			doImport(t, url, nil).wantFailure(t, transfer.SourceChanged, "changed while it was read")
		})
	}
}

func TestCredentialsAndHeaders(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("X-Secret") != "" || r.Header.Get("X-Open") != "yes" {
			http.Error(w, "secrets were sent to another host", http.StatusTeapot)
			return
		}
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(newDisk()))
	}))
	t.Cleanup(other.Close)
	url := handle(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "me" || password != "secret" || r.Header.Get("X-Secret") != "s" || r.Header.Get("X-Open") != "yes" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
	})
	with := func(o *importer.Options) {
		o.Source.Username, o.Source.Password = "me", "secret"
		o.Source.Headers, o.Source.SecretHeaders = []string{"X-Open: yes"}, []string{"X-Secret: s"}
	}
	doImport(t, url, with).wantDisk(t, newDisk(), diskSize)
	doImport(t, url, nil).wantFailure(t, transfer.Unauthorized)
	doImport(t, url, func(o *importer.Options) { o.Source.Headers = []string{"no colon"} }).wantFailure(t, transfer.BadRequest)
}

func TestImagesThatAreRefused(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	good, err := os.ReadFile(qcow2(t, raw, raw+".qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	base := qcow2(t, raw, filepath.Join(t.TempDir(), "base.qcow2"))
	overlay := filepath.Join(t.TempDir(), "overlay.qcow2")
	run(t, "qemu-img", "create", "-f", "qcow2", "-F", "qcow2", "-b", base, overlay)
	data := filepath.Join(t.TempDir(), "data.qcow2")
	run(t, "qemu-img", "create", "-f", "qcow2", "-o", "data_file="+data+".raw", data, "10M")
	read := func(name string) []byte {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	put := func(at int, word uint64) []byte {
		b := bytes.Clone(good)
		binary.BigEndian.PutUint64(b[at:], word)
		return b
	}
	l1 := int(binary.BigEndian.Uint64(good[40:]))
	l2 := int(binary.BigEndian.Uint64(good[l1:]) & 0x00fffffffffffe00)
	for name, c := range map[string]struct {
		file   []byte
		reason transfer.Reason
		words  string
	}{
		"a backing file":                       {read(overlay), transfer.WrongFormat, base},
		"an external data file":                {read(data), transfer.WrongFormat, "another file"},
		"encryption":                           {put(32, 2<<32|uint64(binary.BigEndian.Uint32(good[36:]))), transfer.WrongFormat, "encrypted"},
		"a zip archive":                        {append([]byte("PK\x03\x04"), good...), transfer.WrongFormat, "zip"},
		"a text":                               {[]byte(strings.Repeat("Moved to another place.\n", 40)), transfer.WrongFormat, "Moved to another"},
		"a truncated qcow2":                    {good[:len(good)/2], transfer.InvalidImage, "truncated"},
		"a qcow2 cut inside of its header":     {good[:80], transfer.InvalidImage, "header"},
		"a qcow2 that lies about its size":     {put(24, 1<<60), transfer.InvalidImage, "table would be too large"},
		"a qcow2 of no bytes":                  {put(24, 0), transfer.InvalidImage, "no bytes"},
		"a first table outside of the file":    {put(40, 1<<40), transfer.InvalidImage, "truncated"},
		"a first table inside of a cluster":    {put(40, 12345), transfer.InvalidImage, "12345"},
		"a first table that points at itself":  {put(l1, uint64(l1)|1<<63), transfer.InvalidImage, "overlaps"},
		"a second table that is the header":    {put(l1, 1<<63|512), transfer.InvalidImage, "inside of a cluster"},
		"a second table outside of the file":   {put(l1, 1<<40|1<<63), transfer.InvalidImage, "truncated"},
		"a second table that points at itself": {put(l2, uint64(l2)|1<<63), transfer.InvalidImage, "stands on a table"},
		"data outside of the file":             {put(l2, 1<<40|1<<63), transfer.InvalidImage, "truncated"},
		"data on the first table":              {put(l2, uint64(l1)|1<<63), transfer.InvalidImage, "overlaps"},
		"compressed data that is none":         {put(l2, 1<<62|uint64(l1)), transfer.InvalidImage, "unpacked"},
		"a broken gzip stream":                 {append([]byte("\x1f\x8b\x08\x00"), good[:5000]...), transfer.InvalidImage, "gz"},
		"a gzip stream that ends early":        {read(pack(t, raw, raw+".gz", "gzip", "-c"))[:1<<20], transfer.InvalidImage, "too early"},
		"a zstd window that does not fit":      {read(pack(t, raw, raw+".zst", "sh", "-c", "zstd -q --long=27 -c <$0")), transfer.WrongFormat, "--long=26"},
		"gzip in gzip":                         {read(pack(t, pack(t, raw, raw+".1.gz", "gzip", "-c"), raw+".2.gz", "gzip", "-c")), transfer.WrongFormat, "pack it once"},
		"a truncated qcow2 in a gzip stream":   {read(pack(t, writeFile(t, "cut", good[:len(good)/2]), raw+".3.gz", "gzip", "-c")), transfer.InvalidImage, "truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			url := handle(t, func(w http.ResponseWriter, r *http.Request) {
				http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(c.file))
			})
			doImport(t, url, nil).wantFailure(t, c.reason, c.words)
		})
	}
}

func TestADiskLargerThanItsVolume(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	qcow := qcow2(t, raw, raw+".qcow2")
	huge := filepath.Join(t.TempDir(), "huge.qcow2")
	run(t, "qemu-img", "create", "-f", "qcow2", huge, "10T")
	for name, file := range map[string]string{
		"raw": raw, "qcow2": qcow, "a huge qcow2": huge, "packed raw": pack(t, raw, raw+".gz", "gzip", "-c"), "packed qcow2": pack(t, qcow, raw+".xz", "xz", "-c"),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, filepath.Dir(file))
			doImport(t, s.URL+"/"+filepath.Base(file), func(o *importer.Options) { o.Target.Size = 10 << 20 }).
				wantFailure(t, transfer.TooSmall, "10485760")
		})
	}
}
