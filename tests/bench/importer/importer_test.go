// Package importer measures `slipway import`, the program itself, beside the plain steps that
// it cannot be faster than: the download, a sparse write of the same data that is made safe,
// the fastest decoder of the machine piped into such a write; and beside a download to a file
// that is converted then, which is how the field imports.
//
//	go test -run '^$' -bench . -benchtime 1x ./tests/bench/importer
//
// It prints a table with the goals of the design, and last how many of them were missed, which fails
// it. The machine's disk and processors are not equally fast in each minute. So a ratio is of steps that
// ran one right after another, and of five such rounds the median counts; the seconds beside it are the
// medians of each step. What other work on the machine still does to a ratio is allowed for: see the package goal.
// SLIPWAY_BENCH_GIB sets the disk's size in eighths of a GiB (default 4; three eighths of it are data),
// SLIPWAY_BENCH_FORMS a regular expression that a row's name must match (default: all of them).
package importer

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/tests/bench/goal"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// The goals of the design.
const (
	rounds      = 5
	goalRatio   = 1.2  // of the slowest plain step
	goalConvert = 0.5  // of a download that is converted then
	goalMemory  = 128  // MiB
	goalWritten = 1.02 // of the disk's data
)

// form is a file of the disk, how it is made from the raw one, and the programs that unpack
// it. Commands write to standard output, or to OUT where they name it.
type form struct {
	name     string
	pack     string
	decoders []string
	// convert makes a disk of the downloaded file; "" where the field's way is no goal.
	convert string
	// inRegistry is set for a file that is the disk of a container image, inOrder for one whose server answers no range requests.
	inRegistry, inOrder bool
}

const (
	toRaw  = "qemu-img convert -f qcow2 -O raw IN OUT"
	copied = "qemu-img convert -f raw -O raw IN OUT"
)

var forms = []form{
	{name: "raw", convert: copied},
	{name: "qcow2", pack: "qemu-img convert -f raw -O qcow2 IN OUT", convert: toRaw},
	{name: "qcow2 -c (zlib)", pack: "qemu-img convert -c -f raw -O qcow2 IN OUT", decoders: []string{toRaw}},
	{name: "qcow2 -c (zstd)", pack: "qemu-img convert -c -o compression_type=zstd -f raw -O qcow2 IN OUT", decoders: []string{toRaw}},
	{name: "gz", pack: "gzip -c IN", decoders: []string{"igzip -dc IN", "gzip -dc IN", "pigz -dc IN"}},
	{name: "xz", pack: "xz -T1 -1 -c IN", decoders: []string{"xz -dc IN"}},
	{name: "xz in blocks", pack: "xz -T0 -1 --block-size=24MiB -c IN", decoders: []string{"xz -T0 -dc IN"}},
	{name: "xz, dictionary of 64 MiB", pack: "xz -T1 --lzma2=preset=0,dict=64MiB -c IN", decoders: []string{"xz -dc IN"}},
	{name: "zstd", pack: "zstd -qc IN", decoders: []string{"zstd -dcq IN"}},
	{name: "zstd in frames", pack: "pzstd -qc IN", decoders: []string{"pzstd -dcq IN", "zstd -dcq IN"}},
	{name: "zstd --long=26", pack: "zstd -q --long=26 -c IN", decoders: []string{"zstd -dcq --long=26 IN"}},
	{name: "qcow2, no ranges", pack: "qemu-img convert -f raw -O qcow2 IN OUT", inOrder: true},
	{name: "qcow2 -c, no ranges", pack: "qemu-img convert -c -f raw -O qcow2 IN OUT", decoders: []string{toRaw}, inOrder: true},
	{name: "qcow2 in a registry", pack: "qemu-img convert -f raw -O qcow2 IN OUT", inRegistry: true},
}

// debian is the package of each program.
var debian = map[string]string{
	"qemu-img": "qemu-utils", "gzip": "gzip", "xz": "xz-utils", "zstd": "zstd", "pzstd": "zstd", "igzip": "isal", "pigz": "pigz",
}

func diskSize() int64 {
	if gib, err := strconv.ParseFloat(os.Getenv("SLIPWAY_BENCH_GIB"), 64); err == nil {
		return int64(gib*8) << 27
	}
	return 4 << 30
}

// isData says whether the block at off holds data: three of each eight do.
func isData(off int64) bool { return off/digest.BlockSize%8 < 3 }

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
		if !isData(off) {
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
	data    int64  // bytes of the disk that are not zero
	server  *httptest.Server
	images  *httptest.Server // a registry
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
	for off := int64(0); off < diskSize(); off += digest.BlockSize {
		if isData(off) {
			x.data += digest.BlockSize
		}
	}
	x.serve()
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

func BenchmarkImport(b *testing.B) {
	for program, pkg := range debian {
		need.Program(b, program, pkg)
	}
	wanted, err := regexp.Compile(os.Getenv("SLIPWAY_BENCH_FORMS"))
	if err != nil {
		b.Fatalf("SLIPWAY_BENCH_FORMS: %v", err)
	}
	x := newBench(b)
	for b.Loop() {
		var rows []*row
		for n, f := range forms {
			if !wanted.MatchString(f.name) {
				continue
			}
			r := &row{form: f, file: "raw"}
			if f.pack != "" {
				r.file = fmt.Sprintf("form-%d", n)
				x.pack(f.pack, filepath.Join(x.dir, r.file))
			}
			if f.inRegistry {
				x.push(r.file)
			}
			rows = append(rows, r)
		}
		if len(rows) == 0 {
			b.Fatalf("SLIPWAY_BENCH_FORMS: no row matches %q", wanted)
		}
		for range rounds {
			for _, r := range rows {
				x.round(r)
			}
		}
		x.table(rows)
	}
}

// turn is what the steps of one round took, in seconds; those that a form does not have took 0.
type turn struct {
	ours, write, download, decoded, converted float64
	decoder                                   string // the fastest
}

// floor is the slowest of the steps that an import cannot do without.
func (t turn) floor() float64 { return max(t.write, t.download, t.decoded) }

// row is a line of the table: what each round took, the most memory and the most that was written.
type row struct {
	form    form
	file    string
	turns   []turn
	rss     int64 // KiB
	written int64 // bytes
}

// median is that of a figure of the rounds.
func (r *row) median(of func(turn) float64) float64 {
	all := make([]float64, 0, len(r.turns))
	for _, t := range r.turns {
		all = append(all, of(t))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// round measures each step of a form once.
func (x *bench) round(r *row) {
	t := turn{write: x.write(), download: x.download(r)}
	for _, decoder := range r.form.decoders {
		if took := x.decode(decoder, r.file); t.decoder == "" || took < t.decoded {
			t.decoded, t.decoder = took, strings.Fields(decoder)[0]
		}
	}
	if r.form.convert != "" {
		t.converted = x.convert(r.form.convert, r.file)
	}
	took, used := x.slipwayImport(r)
	t.ours = took
	r.turns = append(r.turns, t)
	r.rss, r.written = max(r.rss, used.Peak), max(r.written, used.Written)
}

// table prints the rows beside their goals and gives their figures to go test.
func (x *bench) table(rows []*row) {
	x.b.Helper()
	fmt.Printf("\nImport of a disk of %.1f GiB with %.1f GiB of data, seconds, medians of %d rounds\n",
		float64(diskSize())/(1<<30), float64(x.data)/(1<<30), rounds)
	fmt.Printf("%-25s %8s %9s %9s %9s %-9s %14s %9s %15s %17s %18s\n", "format", "slipway", "write", "download", "decoder", "", "ratio (<= 1.2)",
		"converted", "ratio (<= 0.5)", "written (<= 1.02)", "peak MiB (<= 128)")
	for _, r := range rows {
		ours := r.median(func(t turn) float64 { return t.ours })
		ratio := r.median(func(t turn) float64 { return t.ours / t.floor() })
		memory, written := float64(r.rss)/1024, float64(r.written)/float64(x.data)
		fmt.Printf("%-25s %8.2f %9.2f %9.2f %9s %-9s %9.2f %4s %9s %15s %12.2f %4s %13.0f %4s\n", r.form.name, ours,
			r.median(func(t turn) float64 { return t.write }), r.median(func(t turn) float64 { return t.download }),
			seconds(r.median(func(t turn) float64 { return t.decoded })), cmp.Or(r.turns[0].decoder, "-"),
			ratio, x.judge(r, "to the slowest plain step", ratio, "x", goalRatio),
			seconds(r.median(func(t turn) float64 { return t.converted })), x.ofConverted(r),
			written, x.judge(r, "written", written, "of the data", goalWritten), memory, x.judge(r, "peak memory", memory, "MiB", goalMemory))
		name := strings.Map(func(c rune) rune {
			if strings.ContainsRune(" ,()", c) {
				return '_'
			}
			return c
		}, r.form.name)
		x.b.ReportMetric(ours, name+"-s")
		x.b.ReportMetric(ratio, name+"-ratio")
		x.b.ReportMetric(memory, name+"-MiB")
	}
}

// judge holds a figure of a row against the most that it may be.
func (x *bench) judge(r *row, what string, value float64, unit string, most float64) goal.Verdict {
	x.b.Helper()
	return goal.Judge(x.b, "import of "+r.form.name+", "+what, value, unit, fmt.Sprintf("<= %g", most))
}

// ofConverted is what part of a download with a conversion behind it the import takes.
func (x *bench) ofConverted(r *row) string {
	x.b.Helper()
	if r.form.convert == "" {
		return "-"
	}
	ratio := r.median(func(t turn) float64 { return t.ours / t.converted })
	return fmt.Sprintf("%.2f %4s", ratio, x.judge(r, "to a download that is converted then", ratio, "x", goalConvert))
}

// seconds is empty for a step that a form does not have.
func seconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", s)
}
