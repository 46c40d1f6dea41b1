// Package importer measures `slipway import`, the program itself, beside the plain steps that
// it cannot be faster than: the download, the sparse write, the fastest decoder of the machine.
//
//	go test -run '^$' -bench . -benchtime 1x ./tests/bench/importer
//
// It prints a table with the goals of the design. The steps take turns, and the fastest of
// three rounds counts for each, since other work on the machine only ever slows a step down.
// SLIPWAY_BENCH_GIB sets the disk's size in eighths of a GiB (default 2; three eighths of it are data).
package importer

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// The goals of the design.
const (
	rounds     = 3
	goalRatio  = 1.2
	goalMemory = 128 // MiB
)

// form is a file of the disk, how it is made from the raw one, and the programs that unpack
// it. Commands write to standard output, or to OUT where they name it.
type form struct {
	name     string
	pack     string
	decoders []string
}

var forms = []form{
	{name: "raw"},
	{"qcow2", "qemu-img convert -f raw -O qcow2 IN OUT", []string{"qemu-img convert -f qcow2 -O raw IN OUT"}},
	{"qcow2 -c (zlib)", "qemu-img convert -c -f raw -O qcow2 IN OUT", []string{"qemu-img convert -f qcow2 -O raw IN OUT"}},
	{"qcow2 -c (zstd)", "qemu-img convert -c -o compression_type=zstd -f raw -O qcow2 IN OUT", []string{"qemu-img convert -f qcow2 -O raw IN OUT"}},
	{"gz", "gzip -c IN", []string{"gzip -dc IN", "pigz -dc IN"}},
	{"xz in blocks", "xz -T0 -1 --block-size=24MiB -c IN", []string{"xz -T0 -dc IN"}},
	{"xz, dictionary of 64 MiB", "xz -T1 --lzma2=preset=0,dict=64MiB -c IN", []string{"xz -T0 -dc IN"}},
	{"zstd", "zstd -qc IN", []string{"zstd -dcq IN"}},
	{"zstd --long=26", "zstd -q --long=26 -c IN", []string{"zstd -dcq --long=26 IN"}},
}

// debian is the package of each program.
var debian = map[string]string{"qemu-img": "qemu-utils", "gzip": "gzip", "xz": "xz-utils", "zstd": "zstd"}

func diskSize() int64 {
	if gib, err := strconv.ParseFloat(os.Getenv("SLIPWAY_BENCH_GIB"), 64); err == nil {
		return int64(gib*8) << 27
	}
	return 2 << 30
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

// bench is what the steps work on. All files are in a folder that the end of the benchmark removes.
type bench struct {
	b       *testing.B
	ctx     context.Context //nolint:containedctx // of the whole benchmark
	dir     string
	slipway string
	raw     string // the disk
	digest  string // of the disk
	server  *httptest.Server
}

func newBench(b *testing.B) *bench {
	b.Helper()
	// An interrupt fails the step under way, so that the files are removed.
	ctx, stop := signal.NotifyContext(b.Context(), os.Interrupt, syscall.SIGTERM)
	b.Cleanup(stop)
	dir := b.TempDir()
	x := &bench{b: b, ctx: ctx, dir: dir, slipway: filepath.Join(dir, "slipway"), raw: filepath.Join(dir, "raw")}
	newDisk(b, x.raw)
	disk, err := os.Open(x.raw)
	if err != nil {
		b.Fatal(err)
	}
	defer disk.Close()
	if x.digest, err = digest.Of(ctx, disk, diskSize(), 2); err != nil {
		b.Fatal(err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-tags", ownTags(),
		"-o", x.slipway, "github.com/slipway-vm/slipway/cmd/slipway")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building slipway as its image has it: %v\n%s", err, text)
	}
	x.server = httptest.NewServer(http.FileServer(http.Dir(dir)))
	b.Cleanup(x.server.Close)
	return x
}

// ownTags are the build tags of this test, which the program needs as well.
func ownTags() string {
	info, _ := debug.ReadBuildInfo()
	for _, setting := range info.Settings {
		if setting.Key == "-tags" {
			return setting.Value
		}
	}
	return ""
}

// output is a place for a step's output; it is removed at once when the step has ended.
func (x *bench) output() (path string, remove func()) {
	path = filepath.Join(x.dir, "out")
	return path, func() {
		if err := os.Remove(path); err != nil {
			x.b.Fatal(err)
		}
	}
}

// command runs one of the commands above from in to out; keep false drops its standard output.
func (x *bench) command(line, in, out string, keep bool) {
	x.b.Helper()
	name := os.DevNull
	if keep || strings.Contains(line, "OUT") {
		name = out
	}
	stdout, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		x.b.Fatal(err)
	}
	defer stdout.Close()
	args := strings.Fields(line)
	for n, arg := range args {
		switch arg {
		case "IN":
			args[n] = in
		case "OUT":
			args[n] = out
		}
	}
	cmd := exec.CommandContext(x.ctx, args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	if err := cmd.Run(); err != nil {
		x.b.Fatalf("%s: %v\n%s", line, err, &stderr)
	}
}

// row is a line of the table: the fastest seconds of each step, and the most memory.
type row struct {
	form                    form
	file                    string
	ours, download, decoded float64
	decoder                 string
	rss                     int64 // KiB
}

func (r *row) goal(write float64) float64 {
	return max(r.download, write, r.decoded)
}

func since(begun time.Time) float64 { return time.Since(begun).Seconds() }

// round measures each step of a form once.
func (x *bench) round(r *row) {
	begun := time.Now()
	x.download(r.file)
	r.download = min(r.download, since(begun))
	for _, decoder := range r.form.decoders {
		if _, err := exec.LookPath(strings.Fields(decoder)[0]); err != nil {
			continue // pigz; the others packed the disk
		}
		out, remove := x.output()
		begun = time.Now()
		x.command(decoder, filepath.Join(x.dir, r.file), out, false)
		if took := since(begun); took < r.decoded || r.decoder == "" {
			r.decoded, r.decoder = took, strings.Fields(decoder)[0]
		}
		if strings.Contains(decoder, "OUT") {
			remove()
		}
	}
	took, rss := x.slipwayImport(r.file)
	r.ours, r.rss = min(r.ours, took), max(r.rss, rss)
}

// download reads a file to nowhere.
func (x *bench) download(name string) {
	x.b.Helper()
	request, err := http.NewRequestWithContext(x.ctx, http.MethodGet, x.server.URL+"/"+name, nil)
	if err != nil {
		x.b.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		x.b.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		x.b.Fatal(err)
	}
}

// slipwayImport runs the program and returns its seconds and its peak memory in KiB. The
// disk that it reports must be the one that was packed.
func (x *bench) slipwayImport(name string) (seconds float64, rss int64) {
	x.b.Helper()
	out, remove := x.output()
	message := filepath.Join(x.dir, "message")
	cmd := exec.CommandContext(x.ctx, x.slipway, "import", "--url", x.server.URL+"/"+name, "--target", out, "--termination-log", message)
	begun := time.Now()
	text, err := cmd.CombinedOutput()
	seconds = since(begun)
	if err != nil {
		x.b.Fatalf("importing %s: %v\n%s", name, err, text)
	}
	remove()
	data, err := os.ReadFile(message)
	if err != nil {
		x.b.Fatal(err)
	}
	result, err := transfer.Decode(string(data))
	if err != nil {
		x.b.Fatal(err)
	}
	if result.Digest != x.digest {
		x.b.Fatalf("the import of %s made another disk: %s, not %s", name, result.Digest, x.digest)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		x.b.Fatal("no resource usage")
	}
	return seconds, usage.Maxrss
}

// write writes the disk sparsely from memory, as fast as it goes, and makes it safe.
func (x *bench) write() float64 {
	x.b.Helper()
	buffer := target.Buffer(digest.BlockSize)
	rand.NewChaCha8([32]byte{}).Read(buffer) //nolint:errcheck // it cannot fail
	out, remove := x.output()
	defer remove()
	begun := time.Now()
	disk, err := target.Open(target.Options{Path: out, Size: diskSize()})
	if err != nil {
		x.b.Fatal(err)
	}
	if err := disk.Begin(diskSize()); err != nil {
		x.b.Fatal(err)
	}
	for off := int64(0); off < diskSize(); off += digest.BlockSize {
		if off/digest.BlockSize%8 >= 3 {
			continue
		}
		if err := disk.Write(buffer, off); err != nil {
			x.b.Fatal(err)
		}
	}
	if err := disk.Commit(x.ctx); err != nil {
		x.b.Fatal(err)
	}
	return since(begun)
}

func BenchmarkImport(b *testing.B) {
	for program, pkg := range debian {
		need.Program(b, program, pkg)
	}
	x := newBench(b)
	for b.Loop() {
		rows := make([]*row, len(forms))
		for n, f := range forms {
			rows[n] = &row{form: f, file: "raw", ours: math.Inf(1), download: math.Inf(1)}
			if f.pack != "" {
				rows[n].file = fmt.Sprintf("form-%d", n)
				x.command(f.pack, x.raw, filepath.Join(x.dir, rows[n].file), true)
			}
		}
		write := math.Inf(1)
		for range rounds {
			write = min(write, x.write())
			for _, r := range rows {
				x.round(r)
			}
		}
		table(b, rows, write)
	}
}

// table prints the rows beside their goals and gives their figures to go test.
func table(b *testing.B, rows []*row, write float64) {
	b.Helper()
	fmt.Printf("\nImport of a disk of %.1f GiB over HTTP, seconds, the best of %d; plain sparse write %.2f\n", float64(diskSize())/(1<<30), rounds, write)
	fmt.Printf("%-26s %8s %10s %10s %-10s %14s %18s\n", "format", "slipway", "download", "decoder", "", "ratio (<= 1.2)", "peak MiB (<= 128)")
	for _, r := range rows {
		ratio, memory := r.ours/r.goal(write), float64(r.rss)/1024
		fmt.Printf("%-26s %8.2f %10.2f %10.2f %-10s %9.2f %4s %13.0f %4s\n", r.form.name, r.ours, r.download, r.decoded,
			cmp.Or(r.decoder, "none"), ratio, verdict(ratio <= goalRatio), memory, verdict(memory <= goalMemory))
		name := strings.Map(func(c rune) rune {
			if strings.ContainsRune(" ,()", c) {
				return '_'
			}
			return c
		}, r.form.name)
		b.ReportMetric(r.ours, name+"-s")
		b.ReportMetric(ratio, name+"-ratio")
		b.ReportMetric(memory, name+"-MiB")
	}
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "MISS"
}
