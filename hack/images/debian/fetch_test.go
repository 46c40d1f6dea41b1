package debian

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/hack/images/debian/mirror"
)

const content = "a package"

// archives serves one package at some paths and refuses all others.
func archives(t *testing.T, answers map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := answers[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(w, r)
		case body == "":
			http.Error(w, "no", http.StatusBadGateway)
		default:
			_, _ = w.Write([]byte(body))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestFetchTriesMirrorsThenTheSnapshots(t *testing.T) {
	sum := sha256.Sum256([]byte(content))
	p := Package{Archive: "debian", Path: "pool/main/a/a/a_1+b_all.deb", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	resolved := time.Date(2026, 11, 20, 18, 46, 40, 0, time.UTC)
	const snapshot = "/snap/debian/20261120T184640Z/pool/main/a/a/a_1+b_all.deb"
	cases := map[string]struct {
		answers map[string]string
		want    string // of the error; empty for none
	}{
		"the first mirror":                      {answers: map[string]string{"/one/" + p.Path: content}},
		"the second where the first has it not": {answers: map[string]string{"/two/" + p.Path: content}},
		"the second where the first is broken":  {answers: map[string]string{"/one/" + p.Path: "", "/two/" + p.Path: content}},
		"the second where the first is false":   {answers: map[string]string{"/one/" + p.Path: "another", "/two/" + p.Path: content}},
		"the snapshot where no mirror has it":   {answers: map[string]string{snapshot: content}},
		"nowhere":                               {want: "--update-locks"},
		"a broken mirror is no reason to ask the snapshots": {
			answers: map[string]string{"/one/" + p.Path: "", snapshot: content}, want: "502",
		},
		"a false package": {answers: map[string]string{"/one/" + p.Path: "another"}, want: "the lock says " + p.SHA256},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := archives(t, c.answers)
			get := newFetcher(source{mirrors: mirror.Mirrors{"debian": {server + "/one", server + "/two"}}})
			get.snapshots = server + "/snap"
			file := filepath.Join(t.TempDir(), "a.deb")
			err := get.one(t.Context(), p, resolved, file)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want one with %q", err, c.want)
				}
				return
			}
			if got, readErr := os.ReadFile(file); err != nil || readErr != nil || string(got) != content {
				t.Errorf("got %q (%v, %v)", got, err, readErr)
			}
		})
	}
}

func TestFetchGoesThroughAptsProxy(t *testing.T) {
	sum := sha256.Sum256([]byte(content))
	p := Package{Archive: "debian", Path: "pool/a_1_all.deb", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	proxy := archives(t, map[string]string{"/debian/" + p.Path: content})
	get := newFetcher(source{
		mirrors: mirror.Mirrors{"debian": {"http://mirror.invalid/debian"}},
		proxies: mirror.Proxies{"http::proxy": proxy},
	})
	if err := get.one(t.Context(), p, time.Time{}, filepath.Join(t.TempDir(), "a.deb")); err != nil {
		t.Error(err)
	}
}

func TestFetchNamesAnUnknownArchiveAndHidesPasswords(t *testing.T) {
	get := newFetcher(source{})
	p := Package{Archive: "other", Path: "pool/a_1_all.deb"}
	if err := get.one(t.Context(), p, time.Time{}, "x"); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("error %v, want one that names the archive", err)
	}
	server, err := url.Parse(archives(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	server.User = url.UserPassword("me", "secret")
	if err := get.download(t.Context(), server.String()+"/x", p, "x"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v, want one without the password", err)
	}
}

// A lock must be the same whatever the mirror's address is.
func TestParseURIsNamesArchivesNotAddresses(t *testing.T) {
	var locks []string
	for _, base := range []string{"http://one.example.org/debian", "https://two.example.org/pub/main"} {
		all, err := parseURIs("'"+base+"/pool/main/a/a/a_1_all.deb' a_1_all.deb 5 SHA256:aa\n'"+base+"-s/pool/updates/main/b/b/b_1_all.deb' b_1_all.deb 5 SHA256:aa\n", nil)
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		locks = append(locks, all[0].archive+" "+all[1].archive)
	}
	if locks[0] != "debian debian-security" || locks[1] != locks[0] {
		t.Errorf("archives are %q", locks)
	}
}
