package stepcache

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/digest"
)

var (
	base  = digest.New().Sum(1 << 30)
	image = "sha256:" + strings.Repeat("ab", 32)
)

func newStep(change func(*Step)) Step {
	s := Step{
		Tool: "virt-customize", Image: image, Base: base, Commands: "write /etc/motd:hello\n", Options: []string{"--smp 2"},
		Inputs: []Input{{Path: "/data01/a", Mode: 0o644, Digest: "00"}},
	}
	if change != nil {
		change(&s)
	}
	return s
}

// The keys are written down: a change of them makes a miss of everything that users have cached, and must be meant.
func TestKeysStayTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		keyed interface{ Key() (Key, error) }
		want  Key
	}{
		"step":     {newStep(nil), "step1:f586c6adb5f46989d3d3f7c6298897f0657f256923bbb800cf96471d1ed9cd5c"},
		"checksum": {Import{URL: "http://a/b", Checksum: "sha256:00", Size: 5 << 30}, "import2:0df3138cc0f56cf68a73b1cb90b3db5682081125d3d051c3152db300c01f55c3"},
		"etag":     {Import{URL: "http://a/b", Validator: `etag "1"`, Size: 5 << 30}, "import2:b39d7142de20d715b35258748f695300c37baf31bbfe058bfa139e79005da09a"},
		"recipe":   {Recipe{Source: "import2:00", Steps: []Step{newStep(nil)}, Also: []string{"check"}}, "recipe1:5fc3f74e6ff252b476eb5b19034a76a3faab7abb464a5a87f39691626d3f50c6"},
	} {
		got, err := c.keyed.Key()
		if err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
}

func TestAChangedByteIsAnotherKey(t *testing.T) {
	seen := map[Key]string{}
	for name, change := range map[string]func(*Step){
		"nothing":                         nil,
		"tool":                            func(s *Step) { s.Tool = "virt-sysprep" },
		"image":                           func(s *Step) { s.Image = "sha256:" + strings.Repeat("ac", 32) },
		"base":                            func(s *Step) { s.Base = digest.New().Sum(1<<30 + 1) },
		"script":                          func(s *Step) { s.Commands = "write /etc/motd:hellp\n" },
		"script, not UTF-8":               func(s *Step) { s.Commands = "write /etc/motd:hell\xff\n" },
		"script, not UTF-8, another byte": func(s *Step) { s.Commands = "write /etc/motd:hell\xfe\n" },
		"space at the script's end":       func(s *Step) { s.Commands = "write /etc/motd:hello \n" },
		"options":                         func(s *Step) { s.Options = []string{"--smp 3"} },
		"options, split":                  func(s *Step) { s.Options = []string{"--smp", "2"} },
		"no options":                      func(s *Step) { s.Options = nil },
		"input's content":                 func(s *Step) { s.Inputs[0].Digest = "01" },
		"input's mode":                    func(s *Step) { s.Inputs[0].Mode = 0o755 },
		"input's path":                    func(s *Step) { s.Inputs[0].Path = "/data01/b" },
		"input's link":                    func(s *Step) { s.Inputs[0].Link = "x" },
		"one more input":                  func(s *Step) { s.Inputs = append(s.Inputs, Input{Path: "/data01/b"}) },
		"no input":                        func(s *Step) { s.Inputs = nil },
		"what ends one ends another":      func(s *Step) { s.Tool, s.Image = "virt-customize"+image[:1], image },
	} {
		key, err := newStep(change).Key()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%q has the key of %q", name, other)
		}
		seen[key] = name
	}
	if a, _ := newStep(nil).Key(); a != mustKey(t, newStep(func(s *Step) { s.Commands = "write /etc/motd:hello" })) {
		t.Error("a line end at the script's end, which the tool does not see, counts")
	}
}

func mustKey(t *testing.T, s interface{ Key() (Key, error) }) Key {
	t.Helper()
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestWhatIsNotKnownHasNoKey(t *testing.T) {
	for name, keyed := range map[string]interface{ Key() (Key, error) }{
		"base":            newStep(func(s *Step) { s.Base = "" }),
		"base of another": newStep(func(s *Step) { s.Base = "sha256:00" }),
		"image":           newStep(func(s *Step) { s.Image = "" }),
		"image by tag":    newStep(func(s *Step) { s.Image = "registry.example.com/tools:v1" }),
		"import":          Import{URL: "http://a/b", Size: 1},
		"weak checksum":   Import{URL: "http://a/b", Checksum: "md5:00", Size: 1},
		"behind a secret": Import{URL: "http://a/b", Validator: `etag "1"`, Secrets: true, Size: 1},
		"recipe":          Recipe{},
		"recipe's image":  Recipe{Source: "import2:00", Steps: []Step{{}}},
	} {
		if key, err := keyed.Key(); !errors.Is(err, ErrUncacheable) || key != "" {
			t.Errorf("%s: %q, %v; want ErrUncacheable", name, key, err)
		}
	}
}

func TestAnImportIsNamedByItsContentWhereThatIsKnown(t *testing.T) {
	by := func(i Import) Key { return mustKey(t, i) }
	sum := Import{URL: "http://a/b", Checksum: "sha256:00", Size: 1}
	if mirror := (Import{URL: "http://c/d", Checksum: "SHA256:00", Size: 1, Secrets: true}); by(mirror) != by(sum) {
		t.Error("the same file from a mirror is another import")
	}
	if by(Import{URL: "http://a/b", Checksum: "sha256:00", Size: 2}) == by(sum) {
		t.Error("a larger volume is the same import")
	}
	tag := Import{URL: "http://a/b", Validator: `etag "1"`, Size: 1}
	for name, other := range map[string]Import{
		"URL":               {URL: "http://a/c", Validator: `etag "1"`, Size: 1},
		"ETag":              {URL: "http://a/b", Validator: `etag "2"`, Size: 1},
		"header":            {URL: "http://a/b", Validator: `etag "1"`, Size: 1, Headers: []string{"Accept: x"}},
		"md5":               {URL: "http://a/b", Validator: `etag "1"`, Size: 1, Checksum: "md5:00"},
		"a strong checksum": sum,
	} {
		if by(other) == by(tag) {
			t.Errorf("another %s is the same import", name)
		}
	}
}

func TestTheServerSaysWhichVersionItHas(t *testing.T) {
	for name, c := range map[string]struct {
		headers http.Header
		status  int
		want    string
		fails   bool
	}{
		"strong ETag":       {headers: http.Header{"Etag": {`"abc"`}, "Last-Modified": {"today"}}, want: `etag "abc"`},
		"weak ETag":         {headers: http.Header{"Etag": {`W/"abc"`}}, want: ""},
		"date and range":    {headers: http.Header{"Last-Modified": {"today"}, "Content-Range": {"bytes 0-0/77"}}, status: 206, want: "modified today length 77"},
		"date and length":   {headers: http.Header{"Last-Modified": {"today"}, "Content-Length": {"1"}}, want: "modified today length 1"},
		"date, length open": {headers: http.Header{"Last-Modified": {"today"}, "Content-Range": {"bytes 0-0/*"}}, status: 206, want: ""},
		"nothing":           {want: ""},
		"no such file":      {status: 404, fails: true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Token") != "t" {
				t.Errorf("%s: the import's headers are not sent", name)
			}
			maps.Copy(w.Header(), c.headers)
			w.WriteHeader(max(c.status, 200))
			_, _ = w.Write([]byte("x"))
		}))
		got, err := Import{URL: server.URL, Headers: []string{"X-Token: t"}}.Probed(context.Background())
		server.Close()
		if (err != nil) != c.fails || got.Validator != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got.Validator, err, c.want)
		}
	}
	if _, err := (Import{URL: "http://127.0.0.1:1/"}).Probed(context.Background()); err == nil {
		t.Error("a server that is not there has said something")
	}
	if _, err := (Import{URL: "http://127.0.0.1:1/", Checksum: "sha256:00"}).Probed(context.Background()); err != nil {
		t.Errorf("a checksum needs no server: %v", err)
	}
}

func TestImportOfADataVolume(t *testing.T) {
	dv := &cdiv1.DataVolume{}
	if _, ok := ImportOf(dv); ok {
		t.Error("a DataVolume without a source imports")
	}
	dv.Spec.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://a/b", Checksum: "sha256:00", SecretRef: "s", ExtraHeaders: []string{"a: b"}}}
	dv.Spec.Storage = &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ki")}}}
	i, ok := ImportOf(dv)
	if !ok || i.URL != "http://a/b" || i.Checksum != "sha256:00" || !i.Secrets || i.Size != 1024 || len(i.Headers) != 1 {
		t.Errorf("%+v, %v", i, ok)
	}
	dv.Spec.Checkpoints = []cdiv1.DataVolumeCheckpoint{{}}
	if _, ok := ImportOf(dv); ok {
		t.Error("an import of many stages has one key")
	}
}

func TestInputs(t *testing.T) {
	folder := t.TempDir()
	for name, data := range map[string]string{"b/script": "one", "a": "two", "..2026/x": "old", "..data/x": "new"} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"x": "..data/x", "link": "a", "dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	read := func() map[string]Input {
		t.Helper()
		inputs, err := Inputs(folder, filepath.Join(folder, "not-bound"))
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]Input{}
		for _, i := range inputs {
			byName[strings.TrimPrefix(i.Path, folder)] = i
		}
		return byName
	}
	before := read()
	if len(before) != 7 { // the folder, a, b, b/script, dangling, link, x
		t.Fatalf("%d inputs: %v", len(before), before)
	}
	for name, change := range map[string]func() error{
		"/b/script": func() error { return os.WriteFile(filepath.Join(folder, "b/script"), []byte("onf"), 0o644) },
		"/x":        func() error { return os.WriteFile(filepath.Join(folder, "..data/x"), []byte("nex"), 0o644) },
		"/a":        func() error { return os.Chmod(filepath.Join(folder, "a"), 0o755) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		after := read()
		if after[name] == before[name] {
			t.Errorf("a change of %s is not seen: %+v", name, after[name])
		}
		before = after
	}
	if err := os.Rename(filepath.Join(folder, "..2026"), filepath.Join(folder, "..2027")); err != nil {
		t.Fatal(err)
	}
	if after := read(); len(after) != 7 {
		t.Errorf("the versions of a ConfigMap count: %v", after)
	}
}
