package importer_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// isBlob reports whether a request is for a layer or a configuration.
func isBlob(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/sha256:")
}

// pushed is a registry with one image, whose disk is newDisk in a layer that is not packed.
func pushed(t *testing.T) (*registryServer, v1.Layer) {
	t.Helper()
	s := serveRegistry(t)
	layer := layerOf(t, nil, file("disk/disk.img", newDisk()))
	s.push(t, "team/disk:v1", imageOf(t, v1.ConfigFile{}, layer))
	return s, layer
}

// ofLayer makes a fault of requests for a layer, of the real answer to them.
func ofLayer(t *testing.T, layer v1.Layer, fault func(w http.ResponseWriter, answer *httptest.ResponseRecorder)) fault {
	t.Helper()
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return func(w http.ResponseWriter, r *http.Request, real http.Handler) bool {
		if !isBlob(r) || !strings.HasSuffix(r.URL.Path, digest.String()) {
			return false
		}
		answer := httptest.NewRecorder()
		real.ServeHTTP(answer, r)
		fault(w, answer)
		return true
	}
}

func TestALayerThatIsNotWhatItsDigestSays(t *testing.T) {
	disk := newDisk()
	for name, c := range map[string]struct {
		entries []entry
		damage  func(data []byte) []byte
		reason  transfer.Reason
		words   string
	}{
		"a disk with another byte": {[]entry{file("disk/disk.img", disk)}, func(data []byte) []byte {
			data[20<<20]++
			return data
		}, transfer.ChecksumMismatch, "another content"},
		"another byte behind the disk": {[]entry{file("disk/disk.img", disk), file("etc/passwd", []byte("root"))}, func(data []byte) []byte {
			data[len(data)-1]++
			return data
		}, transfer.ChecksumMismatch, "another content"},
		"no archive any more": {[]entry{file("disk/disk.img", disk)}, func(data []byte) []byte {
			copy(data, bytes.Repeat([]byte{0xaa}, 2048))
			return data
		}, transfer.ChecksumMismatch, "another content"},
		"a whiteout that was not there": {[]entry{file("etc/passwd", nil)}, func(data []byte) []byte {
			return bytes.Replace(data, []byte("etc/passwd"), []byte(".wh.disk\x00\x00"), 1)
		}, transfer.ChecksumMismatch, "another content"},
		"more than it was": {[]entry{file("disk/disk.img", disk)}, func(data []byte) []byte {
			return append(data, make([]byte, 1<<20)...)
		}, transfer.ChecksumMismatch, "more than"},
		"less than it was": {[]entry{file("disk/disk.img", disk)}, func(data []byte) []byte {
			return data[:len(data)-5<<20]
		}, transfer.ConnectionLost, "ended after"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveRegistry(t)
			layer := layerOf(t, nil, c.entries...)
			s.push(t, "team/disk:v1", imageOf(t, v1.ConfigFile{}, layer))
			s.fail(ofLayer(t, layer, func(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
				_, _ = w.Write(c.damage(answer.Body.Bytes()))
			}))
			s.pull(t, "team/disk:v1", nil).wantFailure(t, c.reason, c.words)
		})
	}
}

func TestAnImageThatIsWrongInItself(t *testing.T) {
	s := serveRegistry(t)
	for name, c := range map[string]struct {
		layer  v1.Layer
		reason transfer.Reason
		words  string
	}{
		"an archive that is cut off": {layerOf(t, []string{"head", "-c", "1000000"}, file("disk/disk.img", newDisk())), transfer.InvalidImage, "no whole tar archive"},
		"gzip that is cut off":       {layerOf(t, []string{"sh", "-c", `gzip -1c "$0" | head -c 1000000`}, file("disk/disk.img", newDisk())), transfer.InvalidImage, "gz stream"},
		"no archive":                 {layerOf(t, []string{"sh", "-c", "seq 100000"}), transfer.InvalidImage, "no whole tar archive"},
		"a page":                     {layerOf(t, nil, file("disk/index.html", []byte("<!DOCTYPE html>"))), transfer.WrongFormat, "text"},
		"a disk with a lying header": {layerOf(t, nil, file("disk/disk.vmdk", append([]byte("KDMV"), make([]byte, 4096)...))), transfer.WrongFormat, "the vmdk image has version 0"},
		"an empty disk":              {layerOf(t, nil, file("disk/disk.img", nil)), transfer.WrongFormat, "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			s.push(t, "team/disk:v1", imageOf(t, v1.ConfigFile{}, c.layer))
			s.pull(t, "team/disk:v1", nil).wantFailure(t, c.reason, c.words)
		})
	}
	s.push(t, "team/disk:v1", imageOf(t, v1.ConfigFile{}, layerOf(t, nil, file("disk/disk.img", newDisk()))))
	s.pull(t, "team/disk:v1", func(o *importer.Options) { o.Target.Size = 1 << 20 }).wantFailure(t, transfer.TooSmall)
}

func TestALayerWhoseDownloadBreaksIsResumed(t *testing.T) {
	s, layer := pushed(t)
	var ranges, deaths atomic.Int64
	serve := func(w http.ResponseWriter, r *http.Request, real http.Handler) bool {
		if !isBlob(r) || !strings.HasSuffix(r.URL.Path, digestText(t, layer)) {
			return false
		}
		span := r.Header.Get("Range")
		if span != "" {
			ranges.Add(1)
		}
		if deaths.Add(-1) >= 0 {
			w = &mortal{ResponseWriter: w, left: 4 << 20}
		}
		r.Header.Del("Range")
		whole := httptest.NewRecorder() // the registry of the tests knows no range without an end
		real.ServeHTTP(whole, r)
		r.Header.Set("Range", span)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(whole.Body.Bytes()))
		return true
	}
	deaths.Store(3)
	s.fail(serve)
	got := s.pull(t, "team/disk:v1", nil)
	got.wantDisk(t, newDisk(), diskSize)
	if size, _ := layer.Size(); ranges.Load() != 3 || got.result.Downloaded != size {
		t.Errorf("%d ranges were asked for, and %d bytes downloaded of %d", ranges.Load(), got.result.Downloaded, size)
	}

	deaths.Store(100)
	s.fail(func(w http.ResponseWriter, r *http.Request, real http.Handler) bool {
		r.Header.Del("Range")
		return serve(w, r, real)
	})
	s.pull(t, "team/disk:v1", nil).wantFailure(t, transfer.ConnectionLost, "broke at byte 4194304")
}

func digestText(t *testing.T, layer v1.Layer) string {
	t.Helper()
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func TestARegistryThatStalls(t *testing.T) {
	s, layer := pushed(t)
	short := func(o *importer.Options) {
		o.Registry.IdleTimeout, o.Registry.RetryFor = 500*time.Millisecond, time.Second
	}
	s.fail(ofLayer(t, layer, func(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
		_, _ = w.Write(answer.Body.Bytes()[:3<<20])
		_ = http.NewResponseController(w).Flush()
		<-t.Context().Done()
	}))
	s.pull(t, "team/disk:v1", short).wantFailure(t, transfer.ConnectionLost, "nothing for too long")
	s.fail(silent(t))
	s.pull(t, "team/disk:v1", short).wantFailure(t, transfer.ConnectionLost, "nothing for too long")
}

func TestARegistryThatRefuses(t *testing.T) {
	s, _ := pushed(t)
	s.pull(t, "team/disk:v2", nil).wantFailure(t, transfer.NotFound, "team/disk:v2", "correct the URL")
	s.pull(t, "team/other:v1", nil).wantFailure(t, transfer.NotFound, "team/other:v1")
	s.pull(t, "team/disk@sha256:"+strings.Repeat("00", 32), nil).wantFailure(t, transfer.NotFound)
	s.pull(t, "Team/disk", nil).wantFailure(t, transfer.BadRequest, "docker://host/name:tag")
	for status, want := range map[int]struct {
		reason transfer.Reason
		words  string
	}{
		http.StatusNotFound:            {transfer.NotFound, "404"},
		http.StatusForbidden:           {transfer.Unauthorized, "secretRef"},
		http.StatusTeapot:              {transfer.SourceFailed, "418"},
		http.StatusInternalServerError: {transfer.SourceFailed, "tried again"},
	} {
		s.fail(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if strings.Contains(r.URL.Path, "/manifests/") {
				http.Error(w, "no", status)
				return true
			}
			return false
		})
		s.pull(t, "team/disk:v1", soonGivenUp).wantFailure(t, want.reason, want.words)
	}
	var refusals atomic.Int64
	s.fail(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !isBlob(r) || refusals.Add(1) > 2 {
			return false
		}
		http.Error(w, "later", http.StatusServiceUnavailable)
		return true
	})
	s.pull(t, "team/disk:v1", nil).wantDisk(t, newDisk(), diskSize)
	s.Close()
	s.pull(t, "team/disk:v1", soonGivenUp).wantFailure(t, transfer.ConnectionLost, "tried again")
}

func TestCredentialsOfARegistry(t *testing.T) {
	s, _ := pushed(t)
	basic := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if user, password, _ := r.BasicAuth(); user == "me" && password == "secret" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return true
	}
	// As the large registries do it: a token, which another address gives for the credentials.
	bearer := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.URL.Path == "/token" {
			if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
				http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"incorrect username or password"}]}`, http.StatusUnauthorized)
			} else {
				fmt.Fprintf(w, `{"token":"of %s"}`, r.URL.Query().Get("scope"))
			}
			return true
		}
		if r.Header.Get("Authorization") == "Bearer of repository:team/disk:pull" {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="registry"`, s.URL))
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return true
	}
	as := func(password string) func(*importer.Options) {
		return func(o *importer.Options) { o.Registry.Username, o.Registry.Password = "me", password }
	}
	for name, fault := range map[string]fault{"by password": basic, "by token": bearer} {
		t.Run(name, func(t *testing.T) {
			s.fail(fault)
			s.pull(t, "team/disk:v1", as("secret")).wantDisk(t, newDisk(), diskSize)
			for _, refused := range []imported{s.pull(t, "team/disk:v1", nil), s.pull(t, "team/disk:v1", as("wrong"))} {
				refused.wantFailure(t, transfer.Unauthorized, "secretRef")
				if strings.Contains(refused.err.Error(), "wrong") {
					t.Errorf("the password is in %v", refused.err)
				}
			}
		})
	}
}

func TestAddressesThatARegistryRedirectsToAreNotTold(t *testing.T) {
	s, layer := pushed(t)
	s.fail(ofLayer(t, layer, func(w http.ResponseWriter, _ *httptest.ResponseRecorder) {
		w.Header().Set("Location", "https://127.0.0.1:1/layer?signature=hidden")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	got := s.pull(t, "team/disk:v1", soonGivenUp)
	got.wantFailure(t, transfer.ConnectionLost)
	if strings.Contains(got.err.Error(), "hidden") {
		t.Errorf("the signature is in %v", got.err)
	}
}

func TestTLSOfARegistry(t *testing.T) {
	s, _ := pushed(t)
	s.pull(t, "team/disk:v1", func(o *importer.Options) { o.Registry.CertDir = "" }).wantFailure(t, transfer.TLSFailure, "certConfigMap")
	s.pull(t, "team/disk:v1", func(o *importer.Options) { o.Registry.CertDir = t.TempDir() }).wantFailure(t, transfer.BadRequest, "PEM")
	s.pull(t, "team/disk:v1", func(o *importer.Options) { o.Registry.CertDir, o.Registry.SkipVerify = "", true }).wantDisk(t, newDisk(), diskSize)

	plain := httptest.NewServer(s.real)
	t.Cleanup(plain.Close)
	at := func(o *importer.Options) {
		soonGivenUp(o)
		o.Registry.URL = strings.Replace(plain.URL, "http:", "docker:", 1) + "/team/disk:v1"
	}
	s.pull(t, "", at).wantFailure(t, transfer.TLSFailure, "has no TLS")
	s.pull(t, "", func(o *importer.Options) { at(o); o.Registry.SkipVerify = true }).wantDisk(t, newDisk(), diskSize)
}

func TestAnImportOfAnImageAsItsPodDoesIt(t *testing.T) {
	s, _ := pushed(t)
	s.fail(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if user, password, _ := r.BasicAuth(); user == "me" && password == "secret" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	login := t.TempDir()
	for name, value := range map[string]string{"accessKeyId": "me", "secretKey": "secret"} {
		if err := os.WriteFile(filepath.Join(login, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(change func(*importer.PodOptions)) (transfer.Result, string) {
		dir := t.TempDir()
		options := importer.PodOptions{URL: s.url("team/disk:v1"), SkipVerify: true, CredentialsDir: login, TerminationLog: filepath.Join(dir, "log")}
		options.Target.Path = filepath.Join(dir, "disk.img")
		change(&options)
		failed := importer.RunPod(ctrllog.IntoContext(context.Background(), logr.Discard()), options)
		data, err := os.ReadFile(options.TerminationLog)
		if err != nil {
			t.Fatal(err, failed)
		}
		result, err := transfer.Decode(string(data))
		if err != nil {
			t.Fatal(err)
		}
		return result, options.Target.Path
	}
	result, path := run(func(*importer.PodOptions) {})
	if disk, err := os.ReadFile(path); err != nil || !bytes.Equal(disk, newDisk()) || result.Digest != digestOf(t, newDisk()) {
		t.Errorf("the disk is another one (%v): %+v", err, result)
	}
	for name, change := range map[string]func(*importer.PodOptions){
		"a checksum":                     func(o *importer.PodOptions) { o.Checksum = "md5:00" },
		"headers":                        func(o *importer.PodOptions) { o.Headers = []string{"A: b"} },
		"an architecture without image":  func(o *importer.PodOptions) { o.URL, o.Architecture = s.URL, "arm64" },
		"credentials that are not there": func(o *importer.PodOptions) { o.CredentialsDir = t.TempDir() },
	} {
		if result, _ := run(change); result.Reason != transfer.BadRequest {
			t.Errorf("%s: %+v", name, result)
		}
	}
}
