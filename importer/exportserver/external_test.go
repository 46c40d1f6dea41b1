package exportserver

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/internal/vmexport"
)

// defined is a definition whose VM imports a disk from the export of a test's server, one from elsewhere, and has one blank.
const defined = `{"apiVersion":"v1","kind":"List","items":[
{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"export-ca-cm-e"},"data":{"ca.pem":"of the server"}},
{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"web"},"spec":{"count":9007199254740993,"dataVolumeTemplates":[
{"metadata":{"name":"root"},"spec":{"source":{"http":{"url":"https://HOST/volumes/root/disk.img.gz","certConfigMap":"export-ca-cm-e","secretExtraHeaders":["header-secret-e"]}}}},
{"metadata":{"name":"other"},"spec":{"source":{"http":{"url":"https://HOST.example.com/volumes/a","certConfigMap":"b"}}}},
{"metadata":{"name":"blank"},"spec":{"source":{"blank":{}}}}]}}]}`

func TestTheDefinitionForOtherClustersLeadsThroughTheProxy(t *testing.T) {
	s := newStage(t)
	s.server = httptest.NewServer(New(Volumes{Manifest: s.at("manifest.json"), HeaderSecret: "header-secret-e"}, s.at("token")))
	defer s.server.Close()
	s.url = s.server.URL
	host := strings.TrimPrefix(s.url, "http://")
	s.write("manifest.json", []byte(strings.ReplaceAll(defined, "HOST", host)))
	const base = "https://exports.example.com/api/x"
	authority := base64.StdEncoding.EncodeToString([]byte("of the Ingress"))
	const moved = `"url":"https://exports.example.com/api/x/volumes/root/disk.img.gz"`
	for sentence, c := range map[string]struct {
		headers   []string
		code      int
		has, lack []string
	}{
		"not by the proxy":          {nil, http.StatusBadRequest, []string{"ask virt-exportproxy"}, []string{"root"}},
		"by who knows no addresses": {[]string{vmexport.HeaderBase + ": ftp://x"}, http.StatusBadRequest, []string{"ask virt-exportproxy"}, []string{"root"}},
		"by who knows no base64": {
			[]string{vmexport.HeaderBase + ": " + base, vmexport.HeaderAuthority + ": %"}, http.StatusBadRequest, []string{"is not base64"}, []string{"root"},
		},
		"with an authority": {
			[]string{vmexport.HeaderBase + ": " + base, vmexport.HeaderAuthority + ": " + authority}, http.StatusOK,
			[]string{
				`"data":{"ca.pem":"of the Ingress"}`, moved, `"certConfigMap":"export-ca-cm-e"`, `"secretExtraHeaders":["header-secret-e"]`,
				`"url":"https://` + host + `.example.com/volumes/a"`, `"blank":{}`, `"count":9007199254740993`,
			},
			[]string{"of the server", "https://" + host + "/"},
		},
		"with one that every system trusts": {
			[]string{vmexport.HeaderBase + ": " + base}, http.StatusOK,
			[]string{moved, `"certConfigMap":"b"`, `"kind":"VirtualMachine"`}, []string{`"ConfigMap"`, "export-ca-cm-e"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			response, body := s.get("GET", vmexport.PathExternalManifest, append(c.headers, known)...)
			if response.StatusCode != c.code {
				t.Errorf("%s, want %d: %s", response.Status, c.code, body)
			}
			for _, want := range c.has {
				if !strings.Contains(string(body), want) {
					t.Errorf("it has not %s:\n%s", want, body)
				}
			}
			for _, lack := range c.lack {
				if strings.Contains(string(body), lack) {
					t.Errorf("it has %s:\n%s", lack, body)
				}
			}
		})
	}
	if response, _ := s.get("GET", vmexport.PathExternalManifest, vmexport.HeaderBase+": "+base); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", response.Status)
	}
	if response, body := s.get("GET", vmexport.PathExternalSecret, known); response.StatusCode != http.StatusOK || !strings.Contains(string(body), "header-secret-e") {
		t.Errorf("the Secret: %s, %s", response.Status, body)
	}
}
