package importer

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/stream"

	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// serve begins to give out the bench's folder, and images.
func (x *bench) serve() {
	files := http.NewServeMux()
	files.Handle("/", http.FileServer(http.Dir(x.dir)))
	files.HandleFunc(inOrder, x.serveInOrder)
	x.server = httptest.NewServer(files)
	x.b.Cleanup(x.server.Close)
	folder := filepath.Join(x.dir, "blobs")
	x.must(os.Mkdir(folder, 0o700))
	blobs := registry.NewDiskBlobHandler(folder)
	x.images = httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(blobs)))
	x.b.Cleanup(x.images.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: x.images.Certificate().Raw})
	x.must(os.Mkdir(x.authorities(), 0o700))
	x.must(os.WriteFile(filepath.Join(x.authorities(), "registry.pem"), authority, 0o600))
}

// inOrder is the path below which files have no ranges.
const inOrder = "/in-order/"

// serveInOrder sends a file from its first byte to its last, whatever is asked for.
func (x *bench) serveInOrder(w http.ResponseWriter, r *http.Request) {
	file, err := os.Open(filepath.Join(x.dir, filepath.Base(r.URL.Path)))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	}
	_, _ = io.Copy(w, file) // who asked sees that it ends early
}

// url is the address of a row's file on the web server.
func (x *bench) url(r *row) string {
	if r.form.inOrder {
		return x.server.URL + inOrder + r.file
	}
	return x.server.URL + "/" + r.file
}

// authorities is the directory with the certificate of the registry.
func (x *bench) authorities() string { return filepath.Join(x.dir, "authorities") }

func (x *bench) must(err error) {
	x.b.Helper()
	if err != nil {
		x.b.Fatal(err)
	}
}

// push makes a container disk of a file, in a layer that is not packed once more.
func (x *bench) push(file string) {
	x.b.Helper()
	from, to := io.Pipe()
	go func() { to.CloseWithError(x.layer(file, to)) }()
	image, err := mutate.AppendLayers(empty.Image, stream.NewLayer(from, stream.WithCompressionLevel(0)))
	x.must(err)
	tag, err := name.NewTag(x.images.Listener.Addr().String() + "/" + file)
	x.must(err)
	x.must(remote.Write(tag, image, remote.WithTransport(x.images.Client().Transport), remote.WithContext(x.ctx)))
}

// layer writes the files of a container disk as a tar archive.
func (x *bench) layer(file string, to io.Writer) error {
	disk, err := os.Open(filepath.Join(x.dir, file))
	if err != nil {
		return err
	}
	defer disk.Close()
	info, err := disk.Stat()
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	if err := w.WriteHeader(&tar.Header{Name: "disk/" + file, Mode: 0o444, Size: info.Size()}); err != nil {
		return err
	}
	if _, err := io.Copy(w, disk); err != nil {
		return err
	}
	return w.Close()
}

// output is a place for a step's output; it is removed at once when the step has ended.
func (x *bench) output() (path string, remove func()) {
	path = filepath.Join(x.dir, "out")
	return path, func() { x.must(os.Remove(path)) }
}

// command is one of the commands above from in to out; it writes to stdout unless it names OUT.
func (x *bench) command(line, in, out string, stdout io.Writer) *exec.Cmd {
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
	cmd.Stdout = stdout
	return cmd
}

func (x *bench) run(cmd *exec.Cmd) {
	x.b.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		x.b.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
}

// pack makes a file of the disk.
func (x *bench) pack(line, out string) {
	x.b.Helper()
	if strings.Contains(line, "OUT") {
		x.run(x.command(line, x.raw, out, nil))
		return
	}
	file, err := os.Create(out)
	x.must(err)
	defer file.Close()
	x.run(x.command(line, x.raw, out, file))
}

func since(begun time.Time) float64 { return time.Since(begun).Seconds() }

// decode unpacks a file into a sparse disk that is made safe: by way of a pipe, or as the program does it.
func (x *bench) decode(line, file string) float64 {
	x.b.Helper()
	in := filepath.Join(x.dir, file)
	out, remove := x.output()
	defer remove()
	begun := time.Now()
	if strings.Contains(line, "OUT") {
		x.run(x.command(line, in, out, nil))
		x.sync(out)
		return since(begun)
	}
	from, to := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := x.writeSparsely(from, out)
		from.CloseWithError(err)
		written <- err
	}()
	x.run(x.command(line, in, out, to))
	to.Close()
	x.must(<-written)
	return since(begun)
}

// convert downloads a file and makes a disk of it then, as the field does.
func (x *bench) convert(line, file string) float64 {
	x.b.Helper()
	scratch := filepath.Join(x.dir, "scratch")
	out, remove := x.output()
	defer remove()
	begun := time.Now()
	to, err := os.Create(scratch)
	x.must(err)
	x.get(x.server.URL+"/"+file, to)
	x.must(to.Sync())
	x.must(to.Close())
	x.run(x.command(line, scratch, out, nil))
	x.sync(out)
	took := since(begun)
	x.must(os.Remove(scratch))
	return took
}

// sync makes a file safe.
func (x *bench) sync(path string) {
	x.b.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	x.must(err)
	defer file.Close()
	x.must(file.Sync())
}

// get reads an address into to.
func (x *bench) get(url string, to io.Writer) {
	x.b.Helper()
	request, err := http.NewRequestWithContext(x.ctx, http.MethodGet, url, nil)
	x.must(err)
	response, err := x.server.Client().Do(request)
	x.must(err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		x.b.Fatalf("%s: %s", url, response.Status)
	}
	_, err = io.Copy(to, response.Body)
	x.must(err)
}

// download reads a row's file to nowhere, from where the import gets it. A registry's layer is checked
// by its digest on the way, as every client of registries does it.
func (x *bench) download(r *row) float64 {
	x.b.Helper()
	if !r.form.inRegistry {
		begun := time.Now()
		x.get(x.url(r), io.Discard)
		return since(begun)
	}
	layer := x.layerOf(r.file)
	begun := time.Now()
	content, err := layer.Compressed()
	x.must(err)
	defer content.Close()
	_, err = io.Copy(io.Discard, content)
	x.must(err)
	return since(begun)
}

// layerOf is the only layer of an image.
func (x *bench) layerOf(file string) v1.Layer {
	x.b.Helper()
	tag, err := name.NewTag(x.images.Listener.Addr().String() + "/" + file)
	x.must(err)
	image, err := remote.Image(tag, remote.WithTransport(x.images.Client().Transport), remote.WithContext(x.ctx))
	x.must(err)
	layers, err := image.Layers()
	x.must(err)
	return layers[0]
}

// slipwayImport runs the program and returns its seconds and what it used. The disk that it
// reports must be the one that was packed.
func (x *bench) slipwayImport(r *row) (took float64, used usage) {
	x.b.Helper()
	out, remove := x.output()
	defer remove()
	message := filepath.Join(x.dir, "message")
	args := []string{"import", "--target", out, "--termination-log", message}
	if r.form.inRegistry {
		args = append(args, "--url", "docker://"+x.images.Listener.Addr().String()+"/"+r.file, "--cert-dir", x.authorities())
	} else {
		args = append(args, "--url", x.url(r))
	}
	begun := time.Now()
	used, text, err := x.measure(args)
	took = since(begun)
	if err != nil {
		x.b.Fatalf("importing %s: %v\n%s", r.form.name, err, text)
	}
	data, err := os.ReadFile(message)
	x.must(err)
	result, err := transfer.Decode(string(data))
	x.must(err)
	if result.Digest != x.digest {
		x.b.Fatalf("the import of %s made another disk: %s, not %s", r.form.name, result.Digest, x.digest)
	}
	return took, used
}

// pages is memory as any program has it, that O_DIRECT accepts.
func pages(size int) []byte {
	raw := make([]byte, size+target.Alignment)
	begin := int(-uintptr(unsafe.Pointer(&raw[0])) & (target.Alignment - 1))
	return raw[begin : begin+size]
}

// write writes the disk's data sparsely from memory, as fast as it goes, and makes it safe.
func (x *bench) write() float64 {
	x.b.Helper()
	buffer := pages(digest.BlockSize)
	rand.NewChaCha8([32]byte{}).Read(buffer) //nolint:errcheck // it cannot fail
	out, remove := x.output()
	defer remove()
	begun := time.Now()
	disk, err := target.Open(target.Options{Path: out, Size: diskSize()})
	x.must(err)
	x.must(disk.Begin(diskSize()))
	for off := int64(0); off < diskSize(); off += digest.BlockSize {
		if isData(off) {
			x.must(disk.Write(buffer, off))
		}
	}
	x.must(disk.Commit(x.ctx))
	return since(begun)
}

// writeSparsely writes a disk that comes in order, but for the blocks that are zero, and makes it safe.
func (x *bench) writeSparsely(from io.Reader, out string) error {
	disk, err := target.Open(target.Options{Path: out, Size: diskSize()})
	if err != nil {
		return err
	}
	if err := disk.Begin(diskSize()); err != nil {
		return err
	}
	buffer, zeros := pages(digest.BlockSize), make([]byte, digest.BlockSize)
	for off := int64(0); ; off += digest.BlockSize {
		if _, err := io.ReadFull(from, buffer); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if bytes.Equal(buffer, zeros) {
			continue
		}
		if err := disk.Write(buffer, off); err != nil {
			return err
		}
	}
	return disk.Commit(x.ctx)
}
