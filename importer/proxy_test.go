package importer_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-vm/slipway/internal/proxy"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/forward"
)

// access is what an importer in a process of its own is told beside its URL.
type access struct {
	Server, CertDir, ProxyCertDir, CredentialsDir string
	SkipVerify                                    bool
}

// importBy imports in a process of its own, which has set in its environment, for that is where importers look for
// proxies. It returns the result, and all that the process said.
func importBy(t *testing.T, set map[string]string, address string, with access) (result transfer.Result, said string) {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "volume"), 0o700))
	told, err := json.Marshal(with)
	must(t, err)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.Contains(strings.ToLower(variable), "_proxy=") // this machine's own
	})
	cmd.Env = append(cmd.Env, importInProcess+"="+address, importTo+"="+dir, importWith+"="+string(told))
	for name, value := range set {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, failed := cmd.CombinedOutput()
	report, err := os.ReadFile(filepath.Join(dir, "report"))
	if err != nil {
		t.Fatalf("the importer ends with %v and says\n%s", failed, out)
	}
	result, err = transfer.Decode(string(report))
	must(t, err)
	if (failed == nil) != (result.Reason == "") {
		t.Errorf("the importer ends with %v and tells of %+v", failed, result)
	}
	if failed == nil {
		imported{result: result, path: filepath.Join(dir, "volume", "disk.img")}.wantDisk(t, newDisk(), diskSize)
	}
	return result, string(out) + string(report)
}

// authority is a folder with the certificate of a server of httptest, all of which have the same.
func authority(t *testing.T, server *httptest.Server) string {
	t.Helper()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return filepath.Dir(writeFile(t, "ca.crt", certificate))
}

// The servers have names that only the proxy knows: a request beside it finds nobody.
func TestEverySourceIsReachedByAProxy(t *testing.T) {
	login := url.UserPassword("importer", "pa55/wörd@x")
	raw := writeFile(t, "disk.raw", newDisk())
	files := serve(t, filepath.Dir(raw))
	secured := httptest.NewTLSServer(http.FileServer(http.Dir(filepath.Dir(raw))))
	t.Cleanup(secured.Close)
	image, err := os.ReadFile(qcow2(t, raw, raw+".qcow2"))
	must(t, err)
	store := newBucket(t, image)
	cloud, key, tokens := google(t)
	images := serveRegistry(t)
	images.push(t, "disk:v1", imageOf(t, v1.ConfigFile{}, layerOf(t, nil, folder("disk/"), file("disk/disk.img", newDisk()))))
	servers := map[string]string{
		"files.example.com:80":     files.Listener.Addr().String(),
		"files.example.com:443":    secured.Listener.Addr().String(),
		"store.example.com:80":     store.Listener.Addr().String(),
		"cloud.example.com:80":     cloud.Listener.Addr().String(),
		"accounts.example.com:80":  cloud.Listener.Addr().String(),
		"registry.example.com:443": images.Listener.Addr().String(),
	}
	trusted := authority(t, secured)
	for name, c := range map[string]struct {
		address string
		with    access
		tunnels bool
	}{
		"http":           {address: "http://files.example.com/disk.raw"},
		"https":          {"https://files.example.com/disk.raw", access{ProxyCertDir: trusted}, true},
		"https, trusted": {"https://files.example.com/disk.raw", access{CertDir: trusted}, true},
		"https, with any certificate": {
			"https://files.example.com/disk.raw", access{SkipVerify: true}, true,
		},
		"s3": {"http://store.example.com" + (&url.URL{Path: store.path}).EscapedPath(), access{
			Server: transfer.SourceS3, CredentialsDir: secret(t, map[string]string{"accessKeyId": store.key.AccessKeyID, "secretKey": store.key.SecretAccessKey}),
		}, false},
		"gcs": {"http://cloud.example.com/images/disk.raw", access{
			Server: transfer.SourceGCS, CredentialsDir: secret(t, map[string]string{"credentials.json": strings.Replace(key, cloud.URL, "http://accounts.example.com", 1)}),
		}, false},
		"registry": {"docker://registry.example.com/disk:v1", access{ProxyCertDir: trusted}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tokens.Store(0)
			by := forward.Start(t, login, servers)
			if name == "gcs" || name == "registry" { // a proxy with TLS
				by = forward.StartTLS(t, login, servers)
				c.with.ProxyCertDir = trusted
			}
			set := map[string]string{proxy.EnvHTTP: by.Address(login), proxy.EnvHTTPS: by.Address(login), proxy.EnvNone: ".svc,.cluster.local"}
			result, said := importBy(t, set, c.address, c.with)
			if result.Reason != "" {
				t.Fatalf("%s: %s", result.Reason, result.Message)
			}
			connects, gets := by.Connects.Load(), by.Gets.Load()
			if c.tunnels != (connects > 0) || c.tunnels != (gets == 0) {
				t.Errorf("the proxy was asked for %d tunnels and %d files", connects, gets)
			}
			noPassword(t, login, said)
		})
	}
}

// noPassword looks for the password in a text, also as it is in an address and in a header.
func noPassword(t *testing.T, login *url.Userinfo, said string) {
	t.Helper()
	password, _ := login.Password()
	_, escaped, _ := strings.Cut(login.String(), ":")
	for _, form := range []string{password, escaped} {
		if strings.Contains(said, form) {
			t.Errorf("the password is in\n%s", said)
		}
	}
}

func TestWhatAProxyRefusesIsSaid(t *testing.T) {
	login := url.UserPassword("importer", "pa55word")
	wrong := url.UserPassword("importer", "of-yesterday")
	plain := forward.Start(t, login, nil)
	secured := forward.StartTLS(t, login, nil)
	talks := forward.Start(t, login, nil)
	talks.Words = "login first"
	_, key, _ := google(t)
	_, at, _ := strings.Cut(key, `"token_uri":"`)
	at, _, _ = strings.Cut(at, `"`)
	account := func(address string) access {
		return access{Server: transfer.SourceGCS, CredentialsDir: secret(t, map[string]string{"credentials.json": strings.Replace(key, at, address, 1)})}
	}
	for name, c := range map[string]struct {
		by      *forward.Proxy
		address string
		with    access
		reason  transfer.Reason
		words   string
	}{
		"a file":              {plain, "http://files.example.com/disk.raw", access{}, transfer.Unauthorized, "answers 407"},
		"a tunnel":            {plain, "https://files.example.com/disk.raw", access{}, transfer.Unauthorized, "answers 407"},
		"that in other words": {talks, "https://files.example.com/disk.raw", access{}, transfer.Unauthorized, "answers 407"},
		"a store": {talks, "https://store.example.com/bucket/disk.raw", access{
			Server: transfer.SourceS3, CredentialsDir: secret(t, map[string]string{"accessKeyId": "a", "secretKey": "b"}),
		}, transfer.Unauthorized, "answers 407"},
		"a token":                      {plain, "http://cloud.example.com/disk.raw", account("http://accounts.example.com/token"), transfer.Unauthorized, "answers 407"},
		"a tunnel to a token":          {talks, "http://cloud.example.com/disk.raw", account("https://accounts.example.com/token"), transfer.Unauthorized, "answers 407"},
		"a registry":                   {plain, "docker://registry.example.com/disk:v1", access{}, transfer.Unauthorized, "answers 407"},
		"to be a stranger":             {secured, "http://files.example.com/disk.raw", access{}, transfer.TLSFailure, "trustedCAProxy"},
		"that with a registry":         {secured, "docker://registry.example.com/disk:v1", access{}, transfer.TLSFailure, "trustedCAProxy"},
		"to be whom the source trusts": {secured, "https://files.example.com/disk.raw", access{CertDir: authority(t, secured.Server)}, transfer.TLSFailure, "trustedCAProxy"},
		// What the file's server is trusted with the proxy, which gets the password, is not.
		"to be just anybody": {secured, "https://files.example.com/disk.raw", access{SkipVerify: true}, transfer.TLSFailure, "trustedCAProxy"},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.by.Refused.Load()
			address := c.by.Address(wrong)
			result, said := importBy(t, map[string]string{proxy.EnvHTTP: address, proxy.EnvHTTPS: address}, c.address, c.with)
			if result.Reason != c.reason || !strings.Contains(result.Message, c.words) || !strings.Contains(result.Message, "importProxy") {
				t.Errorf("the importer tells of %+v", result)
			}
			if asked := c.by.Refused.Load() > before; asked != (c.by != secured) {
				t.Errorf("the proxy got a password: %t", asked)
			}
			noPassword(t, wrong, said)
		})
	}
}
