package diskuploader

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-vm/slipway/tasks/disk-uploader/registry"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// diskOf makes a disk of the size with noise in some places.
func diskOf(t *testing.T, size int64, noise ...int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{1})
	for _, at := range noise {
		_, _ = random.Read(data[:len(data)*3/4]) // it never fails
		if _, err := file.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// repositoryOf is one in the server's registry.
func repositoryOf(t *testing.T, server *httptest.Server) *registry.Repository {
	t.Helper()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	to, err := registry.Parse(strings.TrimPrefix(server.URL, "https://")+"/golden:v1", registry.Options{Authorities: authority}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return to
}

// pull gets a part of the image from the registry.
func pull(t *testing.T, server *httptest.Server, path string) io.ReadCloser {
	t.Helper()
	response, err := server.Client().Get(server.URL + "/v2/golden/" + path)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("pulling %s: %v, %v", path, response, err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response.Body
}

func TestADiskComesBackAsItWas(t *testing.T) {
	qemuImg := need.Program(t, "qemu-img", "qemu-utils")
	server := httptest.NewTLSServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	path := diskOf(t, 200<<20, 0, 5<<20+12345, 150<<20)
	from := source{architecture: "amd64", labels: map[string]string{"instancetype.kubevirt.io/default-preference": "debian"}}
	to := repositoryOf(t, server)
	digest, err := upload(t.Context(), slog.New(slog.DiscardHandler), path, from, to)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := upload(t.Context(), slog.New(slog.DiscardHandler), path, from, to); err != nil || again != digest {
		t.Errorf("a second upload gave %s, %v; the first %s", again, err, digest)
	}

	var manifest v1.Manifest
	if err := json.NewDecoder(pull(t, server, "manifests/"+digest)).Decode(&manifest); err != nil {
		t.Fatal(err)
	}
	config, err := v1.ParseConfigFile(pull(t, server, "blobs/"+manifest.Config.Digest.String()))
	if err != nil || len(config.Config.Env) != 1 || config.Config.Env[0] != "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=debian" {
		t.Errorf("config %+v (%v)", config, err)
	}
	layer, err := gzip.NewReader(pull(t, server, "blobs/"+manifest.Layers[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(layer)
	for {
		header, err := archive.Next()
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			break
		}
	}
	image := filepath.Join(t.TempDir(), "pulled.qcow2")
	file, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, archive); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), qemuImg, "compare", "-f", "raw", "-F", "qcow2", path, image).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A stand-in for a registry that keeps nothing, so that memory in this process is the upload's.
func sink(t *testing.T, onChunk func()) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.Method {
		case http.MethodPost, http.MethodPatch:
			if r.Method == http.MethodPatch && onChunk != nil {
				onChunk()
			}
			w.Header().Set("Location", "/v2/golden/blobs/uploads/1")
			w.WriteHeader(http.StatusAccepted)
		case http.MethodPut:
			w.WriteHeader(http.StatusCreated)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// inUse is how many bytes of memory are in use, without what nobody has collected yet: what is made while a collection runs
// outlives it, on a busy machine some MiB, so that the least of some counts.
func inUse() uint64 {
	least := uint64(math.MaxUint64)
	for range 3 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, m.HeapInuse+m.StackInuse)
	}
	return least
}

func TestMemoryIsBounded(t *testing.T) {
	const size = 160 << 20
	noise := make([]int64, 0, size>>20)
	for at := int64(0); at < size; at += 1 << 20 {
		noise = append(noise, at)
	}
	path := diskOf(t, size, noise...)
	var most atomic.Uint64
	chunks := 0
	server := sink(t, func() {
		chunks++
		most.Store(max(most.Load(), inUse()))
	})
	if _, err := upload(t.Context(), slog.New(slog.DiscardHandler), path, source{}, repositoryOf(t, server)); err != nil {
		t.Fatal(err)
	}
	const bound = 40 << 20
	if chunks < 5 || most.Load() > bound {
		t.Errorf("%d MiB were in use at most in %d chunks, want at most %d MiB", most.Load()>>20, chunks, bound>>20)
	}
	t.Logf("%d MiB in %d chunks", most.Load()>>20, chunks)
}

// changer writes to the disk as soon as the log tells that the upload has begun.
type changer struct {
	slog.Handler
	path string
}

func (changer) Enabled(context.Context, slog.Level) bool { return true }

func (c changer) Handle(_ context.Context, record slog.Record) error {
	if record.Message != "uploading" {
		return nil
	}
	return os.WriteFile(c.path, []byte("x"), 0o600)
}

func TestADiskThatChangesIsNotPublished(t *testing.T) {
	path := diskOf(t, 8<<20, 0, 1<<20, 2<<20)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	log := slog.New(changer{slog.DiscardHandler, path})
	if _, err := upload(t.Context(), log, path, source{}, repositoryOf(t, sink(t, nil))); err == nil || !strings.Contains(err.Error(), "was changed while it was read") {
		t.Errorf("ended with %v", err)
	}
}
