package exportserver

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-vm/slipway/importer/patient"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

const secret = "a-token-of-the-user"

// stage is a server of two volumes: root, which holds a disk, and dumps with files. Beside them lies what is nobody's.
type stage struct {
	t      *testing.T
	url    string
	dir    string
	disk   []byte
	server *httptest.Server
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir(), disk: bytes.Repeat([]byte("0123456789abcdef"), 200_000)}
	for _, folder := range []string{"root", "dumps/deep", "dumps/lost+found", "empty", "outside"} {
		s.must(os.MkdirAll(s.at(folder), 0o700))
	}
	s.write("root/disk.img", s.disk)
	s.write("dumps/a.dump", []byte("a dump"))
	s.write("dumps/deep/b.txt", []byte("more"))
	s.write("dumps/lost+found/c", []byte("lost"))
	s.write("outside/secret", []byte("of another"))
	s.write("token", []byte(secret+"\n"))
	s.must(os.Symlink("../outside/secret", s.at("dumps/out")))
	s.must(os.Symlink("a.dump", s.at("dumps/in")))
	s.must(os.Symlink("../outside", s.at("dumps/deep/folder")))
	s.must(syscall.Mkfifo(s.at("dumps/pipe"), 0o600))
	handler := New(Volumes{
		Disks: map[string]string{"root": s.at("root"), "empty": s.at("empty")}, Files: map[string]string{"dumps": s.at("dumps")},
	}, s.at("token"))
	s.server = httptest.NewServer(handler)
	t.Cleanup(s.server.Close)
	s.url = s.server.URL
	return s
}

func (s *stage) at(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) write(name string, data []byte) {
	s.t.Helper()
	s.must(os.WriteFile(s.at(name), data, 0o600))
}

// get asks for a path with headers, "name: value".
func (s *stage) get(method, path string, headers ...string) (*http.Response, []byte) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, http.NoBody)
	s.must(err)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	s.must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	s.must(err)
	return response, body
}

const known = vmexport.Token + ": " + secret

func TestADiskIsGivenOutAsItIs(t *testing.T) {
	s := newStage(t)
	response, body := s.get("GET", "/volumes/root/disk.img", known)
	if response.StatusCode != http.StatusOK || !bytes.Equal(body, s.disk) || response.Header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("%s, %d bytes, %v", response.Status, len(body), response.Header)
	}
	if got := response.Header.Get("Cache-Control"); got != "private, no-store" {
		t.Errorf("caches are told %q", got)
	}
	response, body = s.get("GET", "/volumes/root/disk.img?"+vmexport.Token+"="+secret, "Range: bytes=1000000-1000099", "If-Range: "+response.Header.Get("ETag"))
	if response.StatusCode != http.StatusPartialContent || !bytes.Equal(body, s.disk[1_000_000:1_000_100]) {
		t.Errorf("a range: %s, %d bytes", response.Status, len(body))
	}
	response, body = s.get("GET", "/volumes/root/disk.img", known, "Range: bytes=1000000-", `If-Range: "of-another-server"`)
	if response.StatusCode != http.StatusOK || len(body) != len(s.disk) {
		t.Errorf("a range of what another server gave out: %s, %d bytes", response.Status, len(body))
	}
	response, body = s.get("HEAD", "/volumes/root/disk.img", known)
	if response.ContentLength != int64(len(s.disk)) || len(body) > 0 {
		t.Errorf("HEAD: %d, %d bytes", response.ContentLength, len(body))
	}
}

func TestADiskIsPacked(t *testing.T) {
	s := newStage(t)
	response, body := s.get("GET", "/volumes/root/disk.img.gz", known)
	zip, err := gzip.NewReader(bytes.NewReader(body))
	s.must(err)
	got, err := io.ReadAll(zip)
	s.must(err)
	if response.StatusCode != http.StatusOK || !bytes.Equal(got, s.disk) || len(body) > len(s.disk)/10 {
		t.Errorf("%s, %d bytes, unpacked %d", response.Status, len(body), len(got))
	}
	if response, body := s.get("HEAD", "/volumes/root/disk.img.gz", known); response.StatusCode != http.StatusOK || len(body) > 0 {
		t.Errorf("HEAD: %s, %d bytes", response.Status, len(body))
	}
}

func TestFilesAreGivenOutOneByOne(t *testing.T) {
	s := newStage(t)
	for path, want := range map[string]string{"a.dump": "a dump", "deep/b.txt": "more"} {
		if response, body := s.get("GET", "/volumes/dumps/dir/"+path, known); response.StatusCode != http.StatusOK || string(body) != want {
			t.Errorf("%s: %s, %q", path, response.Status, body)
		}
	}
	response, list := s.get("GET", "/volumes/dumps/dir/", known)
	if response.StatusCode != http.StatusOK || !strings.Contains(string(list), "a.dump") || !strings.Contains(string(list), "deep/") {
		t.Errorf("the list: %s, %s", response.Status, list)
	}
	for _, hidden := range []string{">out<", ">in<", "pipe"} {
		if strings.Contains(string(list), hidden) {
			t.Errorf("the list has %s: %s", hidden, list)
		}
	}
	if got := response.Header.Get("Content-Security-Policy"); got != "sandbox" {
		t.Errorf("a page of the volume may do anything: %q", got)
	}
	response, _ = s.get("GET", "/volumes/dumps/dir?x=y", known)
	if to := response.Header.Get("Location"); response.StatusCode != http.StatusMovedPermanently || to != "/volumes/dumps/dir/?x=y" {
		t.Errorf("the folder without a slash: %s to %s", response.Status, to)
	}
}

func TestNothingIsFollowed(t *testing.T) {
	s := newStage(t)
	s.must(os.Symlink("../outside/secret", s.at("empty/disk.img")))
	for _, path := range []string{
		"/volumes/dumps/dir/out", "/volumes/dumps/dir/in", "/volumes/dumps/dir/deep/folder/", "/volumes/dumps/dir/deep/folder/secret", "/volumes/dumps/dir/pipe",
		"/volumes/dumps/dir/../outside/secret", "/volumes/dumps/dir/..%2foutside%2fsecret", "/volumes/dumps/dir/../../outside/secret",
		"/volumes/empty/disk.img", "/volumes/empty/disk.img.gz",
		"/volumes/..%2foutside/dir/secret", "/volumes/root/dir/", "/volumes/root/disk.tar.gz", "/volumes/dumps/disk.img", "/volumes/none/disk.img", "/",
	} {
		response, body := s.get("GET", path, known)
		if response.StatusCode != http.StatusNotFound || strings.Contains(string(body), "of another") {
			t.Errorf("%s: %s, %q", path, response.Status, body)
		}
	}
}

func TestAnArchiveHasAllFilesAndLinksAsSuch(t *testing.T) {
	s := newStage(t)
	_, body := s.get("GET", "/volumes/dumps/disk.tar.gz", known)
	zip, err := gzip.NewReader(bytes.NewReader(body))
	s.must(err)
	got := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		s.must(err)
		content, err := io.ReadAll(archive)
		s.must(err)
		got[header.Name] = string(header.Typeflag) + header.Linkname + string(content)
	}
	want := map[string]string{"a.dump": "0a dump", "deep/": "5", "deep/b.txt": "0more", "deep/folder": "2../outside", "in": "2a.dump", "out": "2../outside/secret"}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFileThatIsCalledAsAPageIsAFile(t *testing.T) {
	s := newStage(t)
	s.write("dumps/deep/index.html", []byte("a page"))
	if response, body := s.get("GET", "/volumes/dumps/dir/deep/index.html", known); response.StatusCode != http.StatusOK || string(body) != "a page" {
		t.Errorf("%s, %q", response.Status, body)
	}
	if response, body := s.get("GET", "/volumes/dumps/dir/deep/", known); response.StatusCode != http.StatusOK || !strings.Contains(string(body), ">b.txt<") {
		t.Errorf("the list beside it: %s, %q", response.Status, body)
	}
	if response, _ := s.get("GET", "/volumes/dumps/dir/deep", known); response.Header.Get("Location") != "/volumes/dumps/dir/deep/" {
		t.Errorf("the folder without a slash: %s to %s", response.Status, response.Header.Get("Location"))
	}
	s.must(os.Mkdir(s.at("dumps/<i>"), 0o700))
	if _, list := s.get("GET", "/volumes/dumps/dir/", known); !strings.Contains(string(list), `<a href="%3Ci%3E/">&lt;i&gt;/</a>`) {
		t.Errorf("a name is taken for more: %s", list)
	}
}

// A name on a Linux file system is any bytes.
func TestNamesThatAreNoTextAreArchived(t *testing.T) {
	s := newStage(t)
	s.must(os.Mkdir(s.at("dumps/caf\xe9"), 0o700))
	s.write("dumps/caf\xe9/\xff", []byte("old"))
	_, body := s.get("GET", "/volumes/dumps/disk.tar.gz", known)
	zip, err := gzip.NewReader(bytes.NewReader(body))
	s.must(err)
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		s.must(err)
		if header.Name == "caf\xe9/\xff" {
			break
		}
	}
	if response, body := s.get("GET", "/volumes/dumps/dir/caf%e9/%ff", known); response.StatusCode != http.StatusOK || string(body) != "old" {
		t.Errorf("%s, %q", response.Status, body)
	}
}

func TestWhatCannotBeReadIsNamedBeforeAnythingIsSent(t *testing.T) {
	s := newStage(t)
	for name, mode := range map[string]os.FileMode{"dumps": 0o755, "dumps/deep": 0o755, "dumps/a.dump": 0o644, "dumps/deep/b.txt": 0} {
		s.must(os.Chmod(s.at(name), mode))
	}
	root, err := os.OpenRoot(s.at("dumps"))
	s.must(err)
	defer root.Close()
	found := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with its user
		if os.Geteuid() == 0 {
			_ = syscall.Setfsuid(names.QEMUUser)
		}
		found <- readable(root)
	}()
	if err := <-found; !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "deep/b.txt") {
		t.Errorf("got %v", err)
	}
}

func TestAVolumeThatCannotBeReadIsNotDescribed(t *testing.T) {
	s := newStage(t)
	s.must(os.RemoveAll(s.at("dumps")))
	for _, path := range []string{"/volumes/dumps/disk.tar.gz", "/volumes/dumps/dir/"} {
		response, body := s.get("GET", path, known)
		if response.StatusCode != http.StatusInternalServerError || strings.Contains(string(body), s.dir) {
			t.Errorf("%s: %s, %q", path, response.Status, body)
		}
	}
}

// What is packed as it goes must not look whole when it is not.
func TestABrokenAnswerIsCut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		new(Server).pack(patient.Writer(w), r, "x", func(to io.Writer) error {
			_, _ = to.Write(bytes.Repeat([]byte("x"), 8<<20))
			return errors.New("the disk cannot be read")
		})
	}))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		_, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
	}
	if err == nil {
		t.Error("it ended as if it were whole")
	}
}

// body is a request's that must not be read.
type body struct{ read bool }

func (b *body) Read([]byte) (int, error) {
	b.read = true
	return 0, io.EOF
}

func (b *body) Close() error { return nil }

func TestWithoutTheTokenNothingIsRead(t *testing.T) {
	s := newStage(t)
	s.must(os.RemoveAll(s.at("root"))) // who looks gets another answer
	for name, change := range map[string]func(*http.Request){
		"none":         func(*http.Request) {},
		"an empty one": func(r *http.Request) { r.Header.Set(vmexport.Token, "") },
		"another":      func(r *http.Request) { r.Header.Set(vmexport.Token, "another") },
		"a part":       func(r *http.Request) { r.Header.Set(vmexport.Token, secret[:len(secret)-1]) },
		"more":         func(r *http.Request) { r.Header.Set(vmexport.Token, secret+"x") },
		"another, and the query's": func(r *http.Request) {
			r.Header.Set(vmexport.Token, "x")
			r.URL.RawQuery = vmexport.Token + "=" + secret
		},
		"in another header": func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) },
		"part of the query": func(r *http.Request) { r.URL.RawQuery = vmexport.Token + "=" + secret[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/volumes/root/disk.img", "/volumes/dumps/dir/", "/volumes/none/disk.img", "/"} {
				sent := &body{}
				request := httptest.NewRequest(http.MethodPost, path, sent)
				change(request)
				answer := httptest.NewRecorder()
				s.server.Config.Handler.ServeHTTP(answer, request)
				if answer.Code != http.StatusUnauthorized || sent.read || strings.Contains(answer.Body.String(), secret) {
					t.Errorf("%s: %d, %q; the body was read: %v", path, answer.Code, answer.Body, sent.read)
				}
			}
		})
	}
}

func TestATokenThatIsExchangedCountsAtOnce(t *testing.T) {
	s := newStage(t)
	s.write("token", []byte("a-new-one"))
	codes := []int{}
	for _, token := range []string{secret, "a-new-one"} {
		response, _ := s.get("HEAD", "/volumes/root/disk.img", vmexport.Token+": "+token)
		codes = append(codes, response.StatusCode)
	}
	for _, content := range []string{"", "\n"} { // an empty token is none
		s.write("token", []byte(content))
		response, _ := s.get("HEAD", "/volumes/root/disk.img")
		codes = append(codes, response.StatusCode)
	}
	if !slices.Equal(codes, []int{http.StatusUnauthorized, http.StatusOK, http.StatusInternalServerError, http.StatusInternalServerError}) {
		t.Errorf("got %v", codes)
	}
}

func TestTheDefinitionIsGivenOut(t *testing.T) {
	s := newStage(t)
	const list = `{"apiVersion":"v1","kind":"List","items":[{"kind":"ConfigMap"},{"kind":"VirtualMachine","spec":{"a":1}}]}`
	s.write("manifest.json", []byte(list))
	none := s.server
	s.server = httptest.NewServer(New(Volumes{Manifest: s.at("manifest.json"), HeaderSecret: "header-secret-e"}, s.at("token")))
	defer s.server.Close()
	s.url = s.server.URL
	for _, c := range []struct{ path, accept, kind, want string }{
		{vmexport.PathManifest, "*/*", "application/json", list + "\n"},
		{vmexport.PathManifest, "application/yaml", "application/yaml", "---\nkind: ConfigMap\n---\nkind: VirtualMachine\nspec:\n  a: 1\n"},
		{
			vmexport.PathSecret, "application/yaml", "application/yaml",
			"---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: header-secret-e\nstringData:\n  token: x-kubevirt-export-token:" + secret + "\n",
		},
	} {
		response, body := s.get("GET", c.path, known, "Accept: "+c.accept)
		if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != c.kind || string(body) != c.want {
			t.Errorf("%s as %s: %s %s, %q", c.path, c.accept, response.Status, response.Header.Get("Content-Type"), body)
		}
		if response, body := s.get("GET", c.path); response.StatusCode != http.StatusUnauthorized || strings.Contains(string(body), secret) {
			t.Errorf("%s without a token: %s", c.path, response.Status)
		}
		s.url = none.URL
		if response, _ := s.get("GET", c.path, known); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s of no VM: %s", c.path, response.Status)
		}
		s.url = s.server.URL
	}
	s.must(os.Remove(s.at("manifest.json")))
	if response, body := s.get("GET", vmexport.PathManifest, known); response.StatusCode != http.StatusInternalServerError || strings.Contains(string(body), s.dir) {
		t.Errorf("a definition that is gone: %s, %q", response.Status, body)
	}
}

func TestOnlyReadingIsServed(t *testing.T) {
	s := newStage(t)
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		if response, _ := s.get(method, "/volumes/root/disk.img", known); response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", method, response.Status)
		}
	}
	if response, body := s.get("GET", vmexport.PathHealth); response.StatusCode != http.StatusOK || string(body) != "OK" {
		t.Errorf("health: %s %s", response.Status, body)
	}
}
