package importer_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/imageversion"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// versionOf is what a pod ends with that asks with user and password.
func versionOf(t *testing.T, options importer.PodOptions) transfer.Result {
	t.Helper()
	dir := t.TempDir()
	options.Ask, options.ScratchDir, options.TerminationLog = true, dir, filepath.Join(dir, "log")
	options.CredentialsDir = secret(t, map[string]string{"accessKeyId": "me", "secretKey": "secret"})
	failed := importer.RunPod(ctrllog.IntoContext(context.Background(), logr.Discard()), options)
	data, err := os.ReadFile(options.TerminationLog)
	if err != nil {
		t.Fatal(err, failed)
	}
	result, err := transfer.Decode(string(data))
	must(t, err)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside its result it leaves %v, %v", left, err)
	}
	return result
}

// closed lets nobody in without the user and the password.
func closed(w http.ResponseWriter, r *http.Request) bool {
	if user, password, _ := r.BasicAuth(); user == "me" && password == "secret" {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
	http.Error(w, "no", http.StatusUnauthorized)
	return true
}

func TestAServerIsAskedForTheVersionOfAFile(t *testing.T) {
	for name, c := range map[string]struct {
		header  http.Header // that the server answers with
		ranges  bool
		version string // what tells it; empty where nothing does
	}{
		"a tag":                  {http.Header{"Etag": {`"1"`}}, true, `etag "1"`},
		"a tag, without ranges":  {http.Header{"Etag": {`"1"`}}, false, `etag "1"`},
		"a time":                 {http.Header{"Last-Modified": {"Mon, 02 Nov 2026 10:00:00 GMT"}}, true, "modified Mon, 02 Nov 2026 10:00:00 GMT length 100000"},
		"a time, without ranges": {http.Header{"Last-Modified": {"Mon, 02 Nov 2026 10:00:00 GMT"}}, false, "modified Mon, 02 Nov 2026 10:00:00 GMT length 100000"},
		"nothing":                {http.Header{}, true, ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if closed(w, r) {
				return
			}
			maps.Copy(w.Header(), c.header)
			if !c.ranges {
				r.Header.Del("Range")
			}
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(strings.Repeat("x", 100000)))
		}))
		result := versionOf(t, importer.PodOptions{URL: s.URL + "/disk.qcow2"})
		switch {
		case c.version == "":
			if result.Reason != transfer.SourceFailed || !strings.Contains(result.Message, "neither ETag nor Last-Modified") {
				t.Errorf("%s: %+v", name, result)
			}
		case result.Digest != imageversion.Digest(c.version) || result.Reason != "":
			t.Errorf("%s: %+v, want the digest of %q", name, result, c.version)
		}
		s.Close()
	}
}

func TestARegistryIsAskedForTheDigestOfATag(t *testing.T) {
	s, layer := pushed(t)
	image := imageOf(t, v1.ConfigFile{Architecture: "amd64", OS: "linux"}, layer)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	s.push(t, "team/several:v1", index)
	s.fail(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool { return closed(w, r) })
	several, err := index.Digest()
	must(t, err)
	ask := func(url string, change func(*importer.PodOptions)) transfer.Result {
		options := importer.PodOptions{URL: url, Architecture: "amd64", SkipVerify: true}
		if change != nil {
			change(&options)
		}
		return versionOf(t, options)
	}
	if result := ask(s.url("team/several:v1"), nil); result.Digest != several.String() {
		t.Errorf("got %+v, want the digest of the index, %s", result, several)
	}
	if result := ask(s.url("team/none:v1"), nil); result.Reason != transfer.NotFound {
		t.Errorf("of an image that is not there: %+v", result)
	}
	untrusted, missing := mirrored(t, layer), serveRegistry(t)
	for name, c := range map[string]struct {
		mirror *registryServer
		known  bool
		want   transfer.Reason
	}{
		"a mirror that cannot be asked":                  {untrusted, false, ""},
		"a mirror that cannot be asked, when one is had": {untrusted, true, transfer.TLSFailure},
		"a mirror without the image":                     {missing, false, ""},
		"a mirror without the image, when one is had":    {missing, true, ""},
	} {
		result := ask(s.url("team/several:v1"), func(o *importer.PodOptions) {
			o.From, o.Known = []string{c.mirror.url("mirror/disk:v1"), o.URL}, c.known
			o.InsecureFrom = []string{o.URL}
			if c.mirror == missing {
				o.InsecureFrom = o.From
			}
		})
		if result.Reason != c.want || c.want == "" && result.Digest != several.String() {
			t.Errorf("%s: %+v, want reason %q", name, result, c.want)
		}
	}
}

func TestWhatHasNoMeaningForWhoAsksIsRefused(t *testing.T) {
	for words, change := range map[string]func(*importer.PodOptions){
		"--ask needs --url":       func(o *importer.PodOptions) { o.URL = "" },
		"leave out --target":      func(o *importer.PodOptions) { o.Checksum = "sha256:00" },
		"--known goes with --ask": func(o *importer.PodOptions) { o.Ask, o.Known, o.Target.Path = false, true, "disk.img" },
		"--target is missing":     func(o *importer.PodOptions) { o.Ask = false },
	} {
		options := importer.PodOptions{URL: "https://example.com/disk.qcow2", Ask: true}
		change(&options)
		if err := importer.RunPod(t.Context(), options); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %q", err, words)
		}
	}
}
