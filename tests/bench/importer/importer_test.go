// Package importer measures `slipway import` beside the plain steps that it cannot be
// faster than: the download alone, the sparse write alone, each decoder alone.
//
//	go test -bench . -benchtime 3x ./tests/bench/importer
//
// SLIPWAY_BENCH_GIB sets the disk's size (default 4; three eighths of it are data). Beside the time
// each benchmark reports CPU seconds and, for imports, the peak resident memory.
package importer

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/digest"
)

// forms are the files of the same disk, and how they are made from the raw one.
var forms = []struct {
	name    string
	command []string // writes to standard output, or to the last argument when that is "OUT"
}{
	{"raw", nil},
	{"qcow2", []string{"qemu-img", "convert", "-f", "raw", "-O", "qcow2", "IN", "OUT"}},
	{"compressed.qcow2", []string{"qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", "IN", "OUT"}},
	{"gz", []string{"gzip", "-c", "IN"}},
	{"xz", []string{"xz", "-T0", "-c", "IN"}},
	{"single.xz", []string{"xz", "-T1", "-c", "IN"}},
	{"zst", []string{"zstd", "-qc", "IN"}},
}

// decoders are the plain programs that unpack the forms.
var decoders = map[string][]string{
	"gz": {"gzip", "-dc", "IN"}, "xz": {"xz", "-dc", "IN"}, "single.xz": {"xz", "-dc", "IN"}, "zst": {"zstd", "-dcq", "IN"},
	"qcow2":            {"qemu-img", "convert", "-O", "raw", "IN", "OUT"},
	"compressed.qcow2": {"qemu-img", "convert", "-O", "raw", "IN", "OUT"},
}

func diskSize() int64 {
	if gib, err := strconv.ParseInt(os.Getenv("SLIPWAY_BENCH_GIB"), 10, 64); err == nil {
		return gib << 30
	}
	return 4 << 30
}

// newDisk writes a sparse disk: three of each eight MiB are data that packs about as well as programs do.
func newDisk(b *testing.B, path string) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(diskSize()); err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	words := make([][]byte, 4096)
	for n := range words {
		words[n] = make([]byte, 2+random.IntN(14))
		for i := range words[n] {
			words[n][i] = byte(random.IntN(96) + 32)
		}
	}
	block := make([]byte, 0, digest.BlockSize+32)
	for off := int64(0); off < diskSize(); off += digest.BlockSize {
		if off/digest.BlockSize%8 >= 3 {
			continue
		}
		for block = block[:0]; len(block) < digest.BlockSize; {
			block = append(block, words[int(random.ExpFloat64()*400)%len(words)]...)
		}
		if _, err := f.WriteAt(block[:digest.BlockSize], off); err != nil {
			b.Fatal(err)
		}
	}
}

// substitute puts the file names into a command and returns where its standard output goes.
func substitute(command []string, in, out string) (args []string, stdout string) {
	stdout = out
	for _, arg := range command {
		switch arg {
		case "IN":
			arg = in
		case "OUT":
			arg, stdout = out, os.DevNull
		}
		args = append(args, arg)
	}
	return args, stdout
}

// execute runs a command to its end and returns what it used.
func execute(b *testing.B, stdout string, args ...string) *syscall.Rusage {
	b.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		b.Skipf("%s is not installed", args[0])
	}
	out, err := os.Create(stdout)
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		b.Fatalf("%v: %v", args, err)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		b.Fatal("no resource usage")
	}
	return usage
}

func cpu(u *syscall.Rusage) float64 {
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func BenchmarkImporter(b *testing.B) {
	dir := b.TempDir()
	disk := filepath.Join(dir, "disk.raw")
	newDisk(b, disk)
	slipway := filepath.Join(dir, "slipway")
	build := exec.Command("go", "build", "-o", slipway, "github.com/slipway-vm/slipway/cmd/slipway")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, text)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	out := filepath.Join(dir, "out")
	b.Run("plain/write", func(b *testing.B) { benchWrite(b, disk, out) })
	for _, form := range forms {
		name := "disk." + form.name
		if form.command != nil {
			args, stdout := substitute(form.command, disk, filepath.Join(dir, name))
			execute(b, stdout, args...)
		}
		b.Run("plain/download/"+form.name, func(b *testing.B) { benchDownload(b, server.URL+"/"+name) })
		if decoder := decoders[form.name]; decoder != nil {
			b.Run("plain/decode/"+form.name, func(b *testing.B) {
				var used float64
				for b.Loop() {
					args, stdout := substitute(decoder, filepath.Join(dir, name), out)
					if stdout == out {
						stdout = os.DevNull
					}
					used += cpu(execute(b, stdout, args...))
				}
				b.ReportMetric(used/float64(b.N), "cpu-s/op")
			})
		}
		b.Run("import/"+form.name, func(b *testing.B) {
			var used float64
			var peak int64
			for b.Loop() {
				usage := execute(b, os.DevNull, slipway, "import", "--url", server.URL+"/"+name, "--target", out)
				used, peak = used+cpu(usage), max(peak, usage.Maxrss)
			}
			b.ReportMetric(used/float64(b.N), "cpu-s/op")
			b.ReportMetric(float64(peak)/1024, "MiB-rss")
		})
	}
}

// benchDownload reads a file to nowhere.
func benchDownload(b *testing.B, url string) {
	b.Helper()
	for b.Loop() {
		response, err := http.Get(url) //nolint:noctx,gosec // the benchmark's own server
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			b.Fatal(err)
		}
		response.Body.Close()
	}
}

// benchWrite writes the disk sparsely from memory of one block, as fast as it goes, and makes it safe.
func benchWrite(b *testing.B, from, to string) {
	b.Helper()
	source, err := os.Open(from)
	if err != nil {
		b.Fatal(err)
	}
	defer source.Close()
	buffer := target.Buffer(digest.BlockSize)
	if _, err := source.ReadAt(buffer, 0); err != nil {
		b.Fatal(fmt.Errorf("reading the disk: %w", err))
	}
	for b.Loop() {
		disk, err := target.Open(target.Options{Path: to, Size: diskSize()})
		if err != nil {
			b.Fatal(err)
		}
		if err := disk.Begin(diskSize()); err != nil {
			b.Fatal(err)
		}
		for off := int64(0); off < diskSize(); off += digest.BlockSize {
			if off/digest.BlockSize%8 >= 3 {
				continue
			}
			if err := disk.Write(buffer, off); err != nil {
				b.Fatal(err)
			}
		}
		if err := disk.Commit(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
