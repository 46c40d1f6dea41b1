package importer_test

import (
	"context"
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
	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// lookedFor has the image looked for at each of the registries in turn, by the name mirror/disk:v1 at all but the last.
func lookedFor(registries ...*registryServer) func(*importer.Options) {
	return func(o *importer.Options) {
		for n, s := range registries {
			image := "mirror/disk:v1"
			if n == len(registries)-1 {
				image = "team/disk:v1"
			}
			o.Registry.Places = append(o.Registry.Places, source.Place{URL: s.url(image)})
		}
	}
}

// mirrored is a registry that has the image of pushed by the name of a mirror.
func mirrored(t *testing.T, layer v1.Layer) *registryServer {
	t.Helper()
	s := serveRegistry(t)
	s.push(t, "mirror/disk:v1", imageOf(t, v1.ConfigFile{}, layer))
	return s
}

// refuseAll answers every request with a status.
func refuseAll(status int) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		http.Error(w, "no", status)
		return true
	}
}

func TestTheNextRegistryWhenOneFails(t *testing.T) {
	for name, wrong := range map[string]func(t *testing.T, mirror *registryServer, layer v1.Layer){
		"it is away":        func(_ *testing.T, mirror *registryServer, _ v1.Layer) { mirror.Close() },
		"it lets nobody in": func(_ *testing.T, mirror *registryServer, _ v1.Layer) { mirror.fail(refuseAll(http.StatusForbidden)) },
		"it is broken":      func(_ *testing.T, mirror *registryServer, _ v1.Layer) { mirror.fail(refuseAll(http.StatusBadGateway)) },
		"it is a web page": func(_ *testing.T, mirror *registryServer, _ v1.Layer) {
			mirror.fail(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
				w.Header().Set("Content-Type", "text/html")
				_, _ = w.Write([]byte("<!DOCTYPE html><title>Log in</title>"))
				return true
			})
		},
		"it is no registry":    func(_ *testing.T, mirror *registryServer, _ v1.Layer) { mirror.fail(refuseAll(http.StatusTeapot)) },
		"it has another image": func(_ *testing.T, mirror *registryServer, _ v1.Layer) { mirror.fail(refuseAll(http.StatusNotFound)) },
		"it has not all of the image": func(t *testing.T, mirror *registryServer, layer v1.Layer) {
			mirror.fail(ofLayer(t, layer, func(w http.ResponseWriter, _ *httptest.ResponseRecorder) { http.Error(w, "none", http.StatusNotFound) }))
		},
		"it has a damaged layer": func(t *testing.T, mirror *registryServer, layer v1.Layer) {
			mirror.fail(ofLayer(t, layer, func(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
				data := answer.Body.Bytes()
				data[20<<20]++
				_, _ = w.Write(data)
			}))
		},
		"it breaks off": func(t *testing.T, mirror *registryServer, layer v1.Layer) {
			mirror.fail(ofLayer(t, layer, func(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
				_, _ = w.Write(answer.Body.Bytes()[:20<<20])
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, layer := pushed(t)
			mirror := mirrored(t, layer)
			wrong(t, mirror, layer)
			s.pull(t, "team/disk:v1", lookedFor(mirror, s)).wantDisk(t, newDisk(), diskSize)
		})
	}
	t.Run("it says nothing", func(t *testing.T) {
		s, layer := pushed(t)
		mirror := mirrored(t, layer)
		mirror.fail(silent(t))
		for idle := time.Second; ; idle *= 2 { // until it is enough for the registry that has the image
			got := s.pull(t, "team/disk:v1", func(o *importer.Options) {
				lookedFor(mirror, s)(o)
				o.Registry.IdleTimeout = idle
			})
			if got.err == nil || idle > time.Minute {
				got.wantDisk(t, newDisk(), diskSize)
				return
			}
		}
	})
}

// silent never answers.
func silent(t *testing.T) fault {
	t.Helper()
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		select {
		case <-r.Context().Done():
		case <-t.Context().Done():
		}
		return true
	}
}

func TestTheFirstRegistryThatHasTheImage(t *testing.T) {
	s, layer := pushed(t)
	mirror := mirrored(t, layer)
	var asked atomic.Int64
	s.fail(func(http.ResponseWriter, *http.Request, http.Handler) bool {
		asked.Add(1)
		return false
	})
	s.pull(t, "team/disk:v1", lookedFor(mirror, s)).wantDisk(t, newDisk(), diskSize)
	page := layerOf(t, nil, file("disk/index.html", []byte("<!DOCTYPE html>")))
	mirror.push(t, "mirror/disk:v1", imageOf(t, v1.ConfigFile{}, page))
	s.pull(t, "team/disk:v1", lookedFor(mirror, s)).wantFailure(t, transfer.WrongFormat, "text")
	if asked.Load() > 0 {
		t.Errorf("the image's own registry was asked %d times though its mirror has the image", asked.Load())
	}
}

func TestNoRegistryHasTheImage(t *testing.T) {
	s, layer := pushed(t)
	mirror := mirrored(t, layer)
	mirror.fail(refuseAll(http.StatusForbidden))
	s.fail(refuseAll(http.StatusNotFound))
	s.pull(t, "team/disk:v1", lookedFor(mirror, s)).wantFailure(t, transfer.NotFound, s.url("team/disk:v1"), "before that", mirror.url("mirror/disk:v1"), "403")
}

func TestADamagedImageIsNotTheLastWordWhileAMirrorIsAway(t *testing.T) {
	s, layer := pushed(t)
	mirror := mirrored(t, layer)
	mirror.fail(refuseAll(http.StatusForbidden))
	s.fail(ofLayer(t, layer, func(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
		data := answer.Body.Bytes()
		data[20<<20]++
		_, _ = w.Write(data)
	}))
	s.pull(t, "team/disk:v1", lookedFor(mirror, s)).wantFailure(t, transfer.Unauthorized, "403", "after that", "another content")
	mirror.fail(ofLayer(t, layer, func(w http.ResponseWriter, _ *httptest.ResponseRecorder) { http.Error(w, "none", http.StatusNotFound) }))
	s.pull(t, "team/disk:v1", lookedFor(mirror, s)).wantFailure(t, transfer.NotFound, "after that", "another content")
}

func TestADigestHoldsAtEachRegistry(t *testing.T) {
	s, layer := pushed(t)
	image := imageOf(t, v1.ConfigFile{}, layer)
	s.push(t, "team/disk:v1", image)
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	mirror := mirrored(t, layerOf(t, nil, file("disk/disk.img", make([]byte, 1<<20))))
	mirror.fail(func(w http.ResponseWriter, r *http.Request, real http.Handler) bool {
		r.URL.Path = strings.Replace(r.URL.Path, "manifests/"+digest.String(), "manifests/v1", 1)
		real.ServeHTTP(w, r)
		return true
	})
	named := "team/disk@" + digest.String()
	there := source.Place{URL: mirror.url("mirror/disk@" + digest.String())}
	s.pull(t, named, func(o *importer.Options) {
		o.Registry.Places = []source.Place{there, {URL: s.url(named)}}
	}).wantDisk(t, newDisk(), diskSize)
	s.pull(t, named, func(o *importer.Options) {
		o.Registry.Places = []source.Place{there}
	}).wantFailure(t, transfer.SourceFailed, "digest")
}

func TestADiskThatIsNoneIsTheLastWordWhileAMirrorIsAway(t *testing.T) {
	s, layer := pushed(t)
	mirror := mirrored(t, layer)
	mirror.fail(refuseAll(http.StatusBadGateway))
	s.push(t, "team/disk:v1", imageOf(t, v1.ConfigFile{Config: v1.Config{Labels: map[string]string{"containers.bootc": "1"}}}, layer))
	start := time.Now()
	s.pull(t, "team/disk:v1", func(o *importer.Options) {
		lookedFor(mirror, s)(o)
		o.Registry.RetryFor = 10 * time.Minute
	}).wantFailure(t, transfer.WrongFormat, "bootc", "before that", "502")
	if took := time.Since(start); took > 8*time.Minute {
		t.Errorf("it was tried again for %s", took)
	}
}

func TestCredentialsAreForTheImagesOwnRegistry(t *testing.T) {
	s, layer := pushed(t)
	mirror := mirrored(t, layer)
	var told, toldMirror atomic.Int64
	basic := func(told *atomic.Int64) fault {
		return func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if name, password, _ := r.BasicAuth(); name != "" || password != "" { // without them the library sends both empty
				told.Add(1)
				return false
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return true
		}
	}
	mirror.fail(basic(&toldMirror))
	s.fail(basic(&told))
	s.pull(t, "team/disk:v1", func(o *importer.Options) {
		lookedFor(mirror, s)(o)
		o.Registry.Username, o.Registry.Password = "me", "secret"
	}).wantDisk(t, newDisk(), diskSize)
	if toldMirror.Load() > 0 {
		t.Error("the mirror was told the password of the image's own registry")
	}
	if told.Load() == 0 {
		t.Error("the image's own registry was not told the password")
	}
}

func TestEachRegistryHasItsOwnTrust(t *testing.T) {
	s, layer := pushed(t)
	mirror := mirrored(t, layer)
	plain := httptest.NewServer(mirror.real)
	t.Cleanup(plain.Close)
	address := strings.Replace(plain.URL, "http:", "docker:", 1) + "/mirror/disk:v1"
	places := func(skip bool) func(*importer.Options) {
		return func(o *importer.Options) {
			o.Registry.CertDir = ""
			o.Registry.Places = []source.Place{{URL: address, SkipVerify: skip}, {URL: s.url("team/disk:v1")}}
		}
	}
	s.pull(t, "team/disk:v1", places(true)).wantDisk(t, newDisk(), diskSize)
	s.pull(t, "team/disk:v1", places(false)).wantFailure(t, transfer.TLSFailure, "certConfigMap", "has no TLS")
}

// importedByPod imports as a pod does it.
func importedByPod(t *testing.T, change func(*importer.PodOptions)) transfer.Result {
	t.Helper()
	dir := t.TempDir()
	options := importer.PodOptions{TerminationLog: filepath.Join(dir, "log")}
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
	return result
}

func TestPlacesAsThePodIsTold(t *testing.T) {
	s, layer := pushed(t)
	mirror := mirrored(t, layer)
	result := importedByPod(t, func(o *importer.PodOptions) {
		o.URL = "docker://registry.invalid/team/disk:v1"
		o.From = []string{s.url("none/disk:v1"), mirror.url("mirror/disk:v1"), o.URL}
		o.InsecureFrom = o.From[:2]
	})
	if result.Digest != digestOf(t, newDisk()) {
		t.Errorf("the disk is another one: %+v", result)
	}
	for name, change := range map[string]func(*importer.PodOptions){
		"places of a file":      func(o *importer.PodOptions) { o.URL, o.From = s.URL, []string{"docker://a.example.com/b"} },
		"a place of no address": func(o *importer.PodOptions) { o.URL, o.From = s.url("team/disk:v1"), []string{"a.example.com/b"} },
	} {
		if result := importedByPod(t, change); result.Reason != transfer.BadRequest {
			t.Errorf("%s: %+v", name, result)
		}
	}
}
