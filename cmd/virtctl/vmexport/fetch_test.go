package vmexport

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	exportv1 "kubevirt.io/api/export/v1beta1"

	"github.com/slipway-vm/slipway/internal/vmexport"
)

// content is what is downloaded in tests.
var content = bytes.Repeat([]byte("0123456789"), 100_000)

// flaky is a server that breaks off its first answers in the middle.
type flaky struct {
	*httptest.Server
	breaks int
	// tags are what it calls its content by, one for each answer; the last one from then on.
	tags   []string
	ranges []string
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.ranges = append(f.ranges, r.Header.Get("Range"))
	if r.Header.Get(vmexport.Token) != "token" {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	if len(f.tags) > 0 {
		w.Header().Set("ETag", f.tags[0])
		if len(f.tags) > 1 {
			f.tags = f.tags[1:]
		}
	}
	if f.breaks > 0 {
		f.breaks--
		w = &breaking{ResponseWriter: w, left: 300_000}
	}
	if strings.HasSuffix(r.URL.Path, ".gz") {
		zip := gzip.NewWriter(w)
		_, _ = zip.Write(content)
		_ = zip.Close()
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// breaking hangs up after so many bytes.
type breaking struct {
	http.ResponseWriter
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left > 0 {
		return b.ResponseWriter.Write(p)
	}
	if conn, _, err := http.NewResponseController(b.ResponseWriter).Hijack(); err == nil {
		_ = conn.Close()
	}
	return 0, io.ErrClosedPipe
}

// fetched runs a download from f, to a file unless that is "-".
func fetched(t *testing.T, f *flaky, path, output string, retries uint) (got []byte, said string, err error) {
	t.Helper()
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	var out, stdout bytes.Buffer
	d := &download{Download: &Download{output: output, retries: retries}, out: &out, stdout: &stdout}
	if output != stdoutName {
		d.output = filepath.Join(t.TempDir(), output)
	}
	tr := &transfer{download: d, address: f.URL + path, token: "token", unpack: strings.HasSuffix(path, ".gz")}
	defer tr.close()
	err = tr.repeatedly(t.Context(), func() (*server, error) { return &server{http: f.Client(), close: func() {}}, nil })
	got = stdout.Bytes()
	if tr.file != nil {
		if got, err = readBack(tr.file, err); got == nil {
			t.Fatal(err)
		}
	}
	return got, out.String(), err
}

func readBack(file *os.File, err error) ([]byte, error) {
	got, failed := os.ReadFile(file.Name())
	if failed != nil {
		return nil, failed
	}
	return append([]byte{}, got...), err
}

func TestWhatBrokeOffIsContinued(t *testing.T) {
	f := &flaky{breaks: 2, tags: []string{`"one"`}}
	got, said, err := fetched(t, f, "/disk.img", "disk", 2)
	if err != nil || !bytes.Equal(got, content) || strings.Count(said, "Retrying...") != 2 {
		t.Errorf("%v, %d bytes, said %q", err, len(got), said)
	}
	if f.ranges[0] != "" || !strings.HasPrefix(f.ranges[1], "bytes=") || f.ranges[2] == f.ranges[1] {
		t.Errorf("asked for %q", f.ranges)
	}
}

func TestWhatChangedIsBegunAnew(t *testing.T) {
	f := &flaky{breaks: 1, tags: []string{`"one"`, `"two"`}}
	got, _, err := fetched(t, f, "/disk.img", "disk", 1)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%v, %d bytes", err, len(got))
	}
	f = &flaky{breaks: 1, tags: []string{`"one"`, `"two"`}}
	if _, _, err := fetched(t, f, "/disk.img", stdoutName, 1); err == nil || !strings.Contains(err.Error(), "name a file") {
		t.Errorf("to standard output: %v", err)
	}
}

func TestWhatIsPackedIsUnpackedOnTheWay(t *testing.T) {
	got, _, err := fetched(t, &flaky{}, "/disk.img.gz", "disk", 0)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%v, %d bytes", err, len(got))
	}
}

func TestWithoutTriesLeftItFails(t *testing.T) {
	f := &flaky{breaks: 5}
	_, _, err := fetched(t, f, "/disk.img", "disk", 1)
	if _, again := errors.AsType[broken](err); !again || len(f.ranges) != 2 {
		t.Errorf("%v after %d requests", err, len(f.ranges))
	}
}

func TestARefusalIsNoReasonToTryAgain(t *testing.T) {
	f := &flaky{}
	f.Server = httptest.NewServer(f)
	defer f.Close()
	d := &download{Download: &Download{output: "-", retries: 5}, out: io.Discard, stdout: io.Discard}
	tr := &transfer{download: d, address: f.URL, token: "another"}
	err := tr.repeatedly(t.Context(), func() (*server, error) { return &server{http: f.Client(), close: func() {}}, nil })
	if err == nil || !strings.Contains(err.Error(), "who are you?") || len(f.ranges) != 1 {
		t.Errorf("%v after %d requests", err, len(f.ranges))
	}
}

func TestARefusalLeavesNoFile(t *testing.T) {
	f := &flaky{}
	f.Server = httptest.NewServer(f)
	defer f.Close()
	d := &download{Download: &Download{output: filepath.Join(t.TempDir(), "disk")}, out: io.Discard, stdout: io.Discard}
	tr := &transfer{download: d, address: f.URL, token: "another"}
	if err := tr.repeatedly(t.Context(), func() (*server, error) { return &server{http: f.Client(), close: func() {}}, nil }); err == nil {
		t.Error("it is given out")
	}
	if left, err := os.ReadDir(filepath.Dir(d.output)); err != nil || len(left) > 0 {
		t.Errorf("%v: %v", err, left)
	}
}

// The way to the server may be closed at the moment, and another server may be at its end.
func TestTheWayIsSoughtAnew(t *testing.T) {
	f := &flaky{}
	f.Server = httptest.NewServer(f)
	defer f.Close()
	var out bytes.Buffer
	d := &download{Download: &Download{output: stdoutName, retries: 2}, out: io.Discard, stdout: &out}
	tr := &transfer{download: d, token: "token"}
	tries := 0
	err := tr.repeatedly(t.Context(), func() (*server, error) {
		if tries++; tries < 3 {
			return nil, maybeLater(errors.New("no pod of Service s runs"))
		}
		tr.address = f.URL
		return &server{http: f.Client(), close: func() {}}, nil
	})
	if err != nil || tries != 3 || !bytes.Equal(out.Bytes(), content) {
		t.Errorf("%v after %d tries, %d bytes", err, tries, out.Len())
	}
	forbidden := maybeLater(fmt.Errorf("asking: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no right"))))
	if _, again := errors.AsType[broken](forbidden); again {
		t.Error("what is forbidden is tried again")
	}
}

// What was there under the name stays until the new one is whole.
func TestAFileThatIsNotWholeReplacesNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(name + partial)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close() // so that it cannot be ended
	if err := named(file, name); err == nil {
		t.Error("the failure is forgotten")
	}
	if kept, err := os.ReadFile(name); err != nil || string(kept) != "old" {
		t.Errorf("%v, %q", err, kept)
	}
}

func TestADefinitionIsTheUsersAlone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(name, []byte("old"), 0o644); err != nil { //nolint:gosec // as somebody left it
		t.Fatal(err)
	}
	if err := writePrivately(name, []byte("token")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 5 {
		t.Errorf("%v, %v", err, info)
	}
	if left, err := filepath.Glob(name + ".*"); err != nil || len(left) > 0 {
		t.Errorf("%v: left is %q", err, left)
	}
}

// An export that is published is downloaded from there, unless the user wants another way.
func TestWhatIsPublishedIsDownloadedFromThere(t *testing.T) {
	f := &flaky{}
	f.Server = httptest.NewTLSServer(f)
	defer f.Close()
	outside := &exportv1.VirtualMachineExportLink{Cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}))}
	outside.Volumes = []exportv1.VirtualMachineExportVolume{{
		Name: "root", Formats: []exportv1.VirtualMachineExportVolumeFormat{{Format: exportv1.KubeVirtRaw, Url: f.URL + "/volumes/root/disk.img"}},
	}}
	export := &exportv1.VirtualMachineExport{Status: &exportv1.VirtualMachineExportStatus{Links: &exportv1.VirtualMachineExportLinks{
		Internal: &exportv1.VirtualMachineExportLink{}, External: outside,
	}}}
	for _, way := range []Download{{portForward: true}, {serviceURL: "192.0.2.7"}} {
		d := &download{Download: &way, export: export}
		if link, inside, err := d.links(); err != nil || !inside || link != export.Status.Links.Internal {
			t.Errorf("%+v: %v, %v", way, err, link)
		}
	}
	var out bytes.Buffer
	d := &download{Download: &Download{output: stdoutName, format: formatRaw}, export: export, out: io.Discard, stdout: &out}
	link, inside, err := d.links()
	if err != nil || inside {
		t.Fatalf("%v, %v", err, link)
	}
	tr := &transfer{download: d, token: "token"}
	if tr.address, _, err = d.address(link); err != nil {
		t.Fatal(err)
	}
	reach := func() (*server, error) { return d.reach(t.Context(), link, inside) }
	if err := tr.once(t.Context(), reach); err != nil || !bytes.Equal(out.Bytes(), content) {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
	outside.Cert = ""
	if err := tr.once(t.Context(), reach); err == nil || !strings.Contains(err.Error(), "--insecure; --port-forward") {
		t.Errorf("of a server that nobody vouches for: %v", err)
	}
}
