package importer_test

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// diskSize is the size of the tests' disk: no multiple of a block, so that the tail is tested.
const diskSize = 21<<20 + 3*512

// newDisk makes a disk of data, zeros, text and small holes.
func newDisk() []byte {
	random := rand.NewChaCha8([32]byte{1})
	disk := make([]byte, diskSize)
	fill := func(at, length int) { _, _ = random.Read(disk[at : at+length]) }
	fill(0, 1<<20)
	fill(3<<20+4096, 100<<10)
	fill(7<<20, 3<<20)
	copy(disk[12<<20:], bytes.Repeat([]byte("a slipway is a ramp\n"), 100_000))
	fill(diskSize-512, 512)
	return disk
}

// program is the path of a program, which the machine must have.
func program(t *testing.T, name string) string {
	t.Helper()
	packages := map[string]string{"qemu-img": "qemu-utils", "qemu-io": "qemu-utils", "xz": "xz-utils", "pzstd": "zstd"} // others are named as their package
	return need.Program(t, name, cmp.Or(packages[name], name))
}

// run runs a program of the machine.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program(t, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// qcow2 makes a qcow2 file of the raw file at from.
func qcow2(t *testing.T, from, to string, options ...string) string {
	t.Helper()
	run(t, "qemu-img", append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, options...), from, to)...)
	return to
}

// pack packs a file with a program that writes to its standard output.
func pack(t *testing.T, from, to string, command ...string) string {
	t.Helper()
	program(t, command[0])
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(command[0], append(command[1:], from)...)
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return to
}

// writeFile writes data into a new file.
func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// server serves files; what it does wrong is set by its fields.
type server struct {
	*httptest.Server
	noRanges bool
	dieAfter int64        // a body ends after so many bytes, when deaths are left
	deaths   atomic.Int64 // how many bodies die
	requests atomic.Int64
}

func serve(t *testing.T, dir string) *server {
	t.Helper()
	s := &server{}
	files := http.FileServer(http.Dir(dir))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusMethodNotAllowed) // as presigned URLs do
			return
		}
		if s.noRanges {
			r.Header.Del("Range")
			w = withoutRanges{w}
		}
		if s.dieAfter > 0 && s.deaths.Add(-1) >= 0 {
			w = &mortal{ResponseWriter: w, left: s.dieAfter}
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

type withoutRanges struct{ http.ResponseWriter }

func (w withoutRanges) WriteHeader(code int) {
	w.Header().Del("Accept-Ranges")
	w.ResponseWriter.WriteHeader(code)
}

// mortal cuts the connection after so many bytes.
type mortal struct {
	http.ResponseWriter
	left int64
}

func (m *mortal) Write(p []byte) (int, error) {
	if int64(len(p)) > m.left {
		_, _ = m.ResponseWriter.Write(p[:m.left])
		_ = http.NewResponseController(m.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	m.left -= int64(len(p))
	return m.ResponseWriter.Write(p)
}

// imported is what an import left.
type imported struct {
	result transfer.Result
	err    error
	path   string
}

// doImport imports url into a new file. Change may change the options. A server that is away is tried again for long, as a
// busy machine may need to come back to it.
func doImport(t *testing.T, url string, change func(*importer.Options)) imported {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	options := importer.Options{
		Source: &source.Options{URL: url, RetryFor: 5 * time.Minute, IdleTimeout: 5 * time.Minute},
		Target: target.Options{Path: path},
	}
	if change != nil {
		change(&options)
	}
	result, err := importer.Run(ctrllog.IntoContext(context.Background(), logr.Discard()), options, nil)
	return imported{result, err, path}
}

// wantFailure checks that an import failed for a reason, says so, and left nothing behind.
func (i imported) wantFailure(t *testing.T, reason transfer.Reason, words ...string) {
	t.Helper()
	if i.err == nil {
		t.Fatalf("the import succeeded; want %s", reason)
	}
	if got := transfer.ReasonOf(i.err); got != reason {
		t.Errorf("reason %s, want %s: %v", got, reason, i.err)
	}
	for _, word := range words {
		if !strings.Contains(i.err.Error(), word) {
			t.Errorf("the message lacks %q: %v", word, i.err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(i.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		t.Errorf("%s was left behind", entry.Name())
	}
}

// wantDisk checks that an import made the disk, zeros behind it, sparse and with the right digest.
func (i imported) wantDisk(t *testing.T, disk []byte, size int64) {
	t.Helper()
	if i.err != nil {
		t.Fatal(i.err)
	}
	got, err := os.ReadFile(i.path)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size)
	copy(want, disk)
	if !bytes.Equal(got, want) {
		t.Fatalf("the disk of %d bytes is another one than the %d bytes wanted", len(got), len(want))
	}
	if digest := digestOf(t, want); i.result.Digest != digest {
		t.Errorf("digest %s, want %s", i.result.Digest, digest)
	}
	if left, _ := os.ReadDir(filepath.Dir(i.path)); len(left) != 1 {
		t.Errorf("more than the disk was left: %v", left)
	}
}
