package uploadproxy_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/upload"
)

func TestAnImageGoesThroughToItsClaim(t *testing.T) {
	disk := newDisk()
	qcow2 := converted(t, disk, "qemu-img", "qemu-utils", "convert", "-f", "raw", "-O", "qcow2")
	form := &bytes.Buffer{}
	writer := multipart.NewWriter(form)
	must(t, writer.WriteField("comment", "comes first"))
	part, err := writer.CreateFormFile("file", "disk.qcow2")
	must(t, err)
	_, _ = part.Write(qcow2)
	must(t, writer.Close())
	kind := http.Header{"Content-Type": {writer.FormDataContentType()}}
	for name, c := range map[string]struct {
		path, format string
		body         io.Reader
		header       http.Header
	}{
		"raw":                         {"/v1beta1/upload", "raw", bytes.NewReader(disk), nil},
		"raw of unknown length":       {"/v1beta1/upload", "raw", io.MultiReader(bytes.NewReader(disk)), nil},
		"qcow2":                       {"/v1alpha1/upload-async", "qcow2", bytes.NewReader(qcow2), nil},
		"qcow2 packed with zstd":      {"/v1beta1/upload-async", "qcow2+zst", bytes.NewReader(converted(t, qcow2, "zstd", "zstd", "-qc")), nil},
		"raw packed with gzip":        {"/v1alpha1/upload", "raw+gz", bytes.NewReader(converted(t, disk, "gzip", "gzip", "-c")), nil},
		"a form":                      {"/v1beta1/upload-form", "qcow2", bytes.NewReader(form.Bytes()), kind},
		"a form, by the other of the": {"/v1alpha1/upload-form-async", "qcow2", bytes.NewReader(form.Bytes()), kind},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			if code, said, _ := s.send(t, http.MethodPost, c.path, s.token(t, debian), c.body, c.header); code != http.StatusOK {
				t.Fatalf("%d %s", code, said)
			}
			s.wantDisk(t, disk, c.format)
		})
	}
}

// A user who has sent the wrong file, or whose connection broke, sends the right one to the same place.
func TestAFailedUploadIsToldAndMayBeTriedAgain(t *testing.T) {
	s := newStage(t)
	disk := newDisk()
	qcow2 := converted(t, disk, "qemu-img", "qemu-utils", "convert", "-f", "raw", "-O", "qcow2")
	large := converted(t, make([]byte, 64<<20), "qemu-img", "qemu-utils", "convert", "-f", "raw", "-O", "qcow2")
	for name, c := range map[string]struct {
		path string
		body io.Reader
		code int
		says string
	}{
		"no image":          {"/v1beta1/upload", strings.NewReader("<html>not found</html>"), 400, "Saving stream failed"},
		"nothing":           {"/v1beta1/upload", http.NoBody, 400, "nothing was sent"},
		"a VMDK":            {"/v1beta1/upload", bytes.NewReader(append([]byte("KDMV"), make([]byte, 4096)...)), 400, "Saving stream failed"},
		"half an image":     {"/v1beta1/upload", bytes.NewReader(qcow2[:len(qcow2)/2]), 400, "Saving stream failed"},
		"a disk too large":  {"/v1beta1/upload", bytes.NewReader(large), 400, "ask for a volume of at least"},
		"no form":           {"/v1beta1/upload-form", bytes.NewReader(qcow2), 400, "multipart/form-data"},
		"a clone":           {"/v1beta1/upload", bytes.NewReader(disk), 400, "x-cdi-content-type"},
		"another claim":     {"/v1beta1/upload", bytes.NewReader(disk), 503, "rejecting Upload Request for PVC other that doesn't exist"},
		"a path without it": {"/v1beta1/download", bytes.NewReader(disk), 404, "/v1beta1/upload"},
		"no such method":    {"/v1beta1/upload", bytes.NewReader(disk), 404, "POST"},
	} {
		t.Run(name, func(t *testing.T) {
			method, claim, header := http.MethodPost, debian, http.Header{}
			switch name {
			case "a clone":
				header.Set("x-cdi-content-type", "blockdevice-clone")
			case "another claim":
				claim.Name = "other"
			case "no such method":
				method = http.MethodPut
			}
			code, said, _ := s.send(t, method, c.path, s.token(t, claim), c.body, header)
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("%d %s, want %d %s", code, said, c.code, c.says)
			}
		})
	}
	for _, path := range []string{"/v1beta1/upload-async", "/v1alpha1/upload-form-async"} {
		if code, said, _ := s.send(t, http.MethodHead, path, s.token(t, debian), nil, nil); code != http.StatusOK {
			t.Errorf("HEAD %s: %d %s", path, code, said)
		}
	}
	code, said, _ := s.send(t, http.MethodPost, "/v1beta1/upload", s.token(t, debian), &short{bytes.NewReader(disk[:1<<20])}, nil)
	if code != 0 {
		t.Errorf("an upload that broke off was answered: %d %s", code, said)
	}
	// The server may still be letting go of it.
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if code, said, _ = s.send(t, http.MethodPost, "/v1beta1/upload", s.token(t, debian), bytes.NewReader(qcow2), nil); code != http.StatusServiceUnavailable {
			break
		}
	}
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, said)
	}
	s.wantDisk(t, disk, "qcow2")
}

// short is a body that breaks off.
type short struct{ io.Reader }

func (s *short) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// 10,000 tokens that are forged, expired, replayed or altered are all refused, quickly, and of none
// of their requests is the body read.
func TestBadTokensAreRefusedUnheard(t *testing.T) {
	s := newStage(t)
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	random := mathrand.New(mathrand.NewPCG(1, 2))
	now := time.Now()
	sign := func(key *rsa.PrivateKey, claim upload.Target, at time.Time) string {
		token, err := upload.Sign(key, claim, at)
		must(t, err)
		return token
	}
	good, forged := sign(s.key, debian, now), sign(stranger, debian, now)
	elsewhere := []string{ // replayed: of claims that are gone, or of another namespace
		sign(s.key, upload.Target{Namespace: "other", Name: "debian"}, now), sign(s.key, upload.Target{Namespace: "shop", Name: "gone"}, now),
	}
	expired := sign(s.key, debian, now.Add(-upload.TokenLifetime-time.Minute))
	early := sign(s.key, debian, now.Add(time.Minute))
	kinds := []func() (string, int){
		func() (string, int) { return forged, 401 },
		func() (string, int) { return expired, 401 },
		func() (string, int) { return early, 401 },
		func() (string, int) { return elsewhere[random.IntN(2)], 503 },
		func() (string, int) { return flipped(random, good), 401 },
		func() (string, int) { return renamed(good, random), 401 },
		func() (string, int) { return unsigned(good, "none"), 401 },
		func() (string, int) { return unsigned(good, "HS256"), 401 },
		func() (string, int) { return good[:random.IntN(len(good)-1)+1], 401 },
		func() (string, int) { return strings.Repeat("a", 1+random.IntN(9000)), 401 },
		func() (string, int) { return "", 400 },
		func() (string, int) { return "two words", 400 },
	}
	begin := worked(t)
	const tokens = 10_000
	for n := range tokens {
		token, want := kinds[n%len(kinds)]()
		request := httptest.NewRequest(http.MethodPost, upload.Paths()[n%len(upload.Paths())], untouchable{t})
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer := httptest.NewRecorder()
		s.proxy.ServeHTTP(answer, request)
		if answer.Code != want {
			t.Fatalf("token %d %q: %d, want %d: %s", n, token, answer.Code, want, answer.Body)
		}
		if strings.Contains(answer.Body.String(), "PKCS") || answer.Header().Get("Connection") != "close" {
			t.Fatalf("token %d: %v %s", n, answer.Header(), answer.Body)
		}
	}
	took := worked(t) - begin
	t.Logf("%d tokens were refused in %s of a processor", tokens, took)
	if took > time.Minute { // about 2 s
		t.Errorf("%d tokens took %s of a processor", tokens, took)
	}
	if code, said, _ := s.send(t, http.MethodHead, "/v1beta1/upload-async", good, nil, nil); code != http.StatusOK {
		t.Errorf("the good one is refused too: %d %s", code, said)
	}
}

// worked is for how long this process has had a processor, whatever else the machine does.
func worked(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A sender that wants to be asked first sends nothing.
func TestASenderThatAsksFirstIsNotAskedForTheBody(t *testing.T) {
	s := newStage(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.front.URL+"/v1beta1/upload", untouchable{t})
	must(t, err)
	request.ContentLength = 1 << 30
	request.Header.Set("Expect", "100-continue")
	request.Header.Set("Authorization", "Bearer bad")
	transport := s.client.Transport.(*http.Transport).Clone()
	transport.ExpectContinueTimeout = time.Minute
	response, err := (&http.Client{Transport: transport}).Do(request)
	must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s", response.Status)
	}
}

// flipped changes one bit of one character of a token's meaning.
func flipped(random *mathrand.Rand, token string) string {
	parts := strings.Split(token, ".")
	which := random.IntN(3)
	data, err := base64.RawURLEncoding.DecodeString(parts[which])
	if err != nil {
		return "x"
	}
	data[random.IntN(len(data))] ^= 1 << random.IntN(8)
	parts[which] = base64.RawURLEncoding.EncodeToString(data)
	return strings.Join(parts, ".")
}

// renamed is the token with another claim in it.
func renamed(token string, random *mathrand.Rand) string {
	parts := strings.Split(token, ".")
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "x"
	}
	data = bytes.ReplaceAll(data, []byte(`"debian"`), fmt.Appendf(nil, `"victim-%d"`, random.IntN(1000)))
	parts[1] = base64.RawURLEncoding.EncodeToString(data)
	return strings.Join(parts, ".")
}

// unsigned is the token with the header of another algorithm, and no signature.
func unsigned(token, algorithm string) string {
	parts := strings.Split(token, ".")
	header := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":%q}`, algorithm))
	return header + "." + parts[1] + "."
}

// The upload server listens to the proxy alone.
func TestTheServerTakesNothingFromOthers(t *testing.T) {
	s := newStage(t)
	now := time.Now()
	_, foreign, _ := clientOf(t, "another", upload.ClientName, now)
	wrongName, _, _, err := certs.RenewClient(s.authority, "somebody.else", certs.DefaultLifetimes(), now)
	must(t, err)
	server, err := certs.Issue(s.authority, []string{upload.ClientName}, now)
	must(t, err)
	for name, c := range map[string]struct {
		pair [][]byte
		want int // 0 for no answer at all
	}{
		"without a certificate":                  {nil, http.StatusUnauthorized},
		"with one of another authority":          {foreign, 0},
		"with another name":                      {[][]byte{wrongName[certs.KeyCert], wrongName[certs.KeyKey]}, http.StatusUnauthorized},
		"with that of a server of the authority": {[][]byte{server.Cert, server.Key}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(s.authority[certs.KeyBundle])
			config := &tls.Config{RootCAs: roots, ServerName: upload.ServerHost(debian.Namespace, debian.Name)}
			if c.pair != nil {
				pair, err := tls.X509KeyPair(c.pair[0], c.pair[1])
				must(t, err)
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
			code := 0
			response, err := client.Post("https://"+s.address+"/v1beta1/upload", "", bytes.NewReader(newDisk()[:1<<10]))
			if err == nil {
				code = response.StatusCode
				response.Body.Close()
			}
			if code != c.want {
				t.Errorf("%d, %v, want %d", code, err, c.want)
			}
			if c.pair == nil {
				response, err := client.Get("https://" + s.address + "/healthz")
				must(t, err)
				response.Body.Close()
				if response.StatusCode != http.StatusOK {
					t.Errorf("health: %s", response.Status)
				}
			}
		})
	}
}

// clientOf makes an authority of its own with a client of that name.
func clientOf(t *testing.T, _, name string, now time.Time) (data map[string][]byte, pair [][]byte, err error) {
	t.Helper()
	data, _, _, err = certs.RenewClient(nil, name, certs.DefaultLifetimes(), now)
	must(t, err)
	return data, [][]byte{data[certs.KeyCert], data[certs.KeyKey]}, nil
}

func TestWebPagesMaySend(t *testing.T) {
	s := newStage(t)
	code, _, header := s.send(t, http.MethodOptions, "/v1beta1/upload-form", "", nil, http.Header{
		"Origin": {"https://console.example"}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization"},
	})
	if code != http.StatusNoContent || header.Get("Access-Control-Allow-Origin") != "*" ||
		header.Get("Access-Control-Allow-Methods") != "POST" || header.Get("Access-Control-Allow-Headers") != "authorization" {
		t.Errorf("%d %v", code, header)
	}
	code, _, header = s.send(t, http.MethodPost, "/v1beta1/upload-form", "bad", nil, http.Header{"Origin": {"https://console.example"}})
	if code != http.StatusUnauthorized || header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("a page cannot read why: %d %v", code, header)
	}
	if code, said, _ := s.send(t, http.MethodGet, "/healthz", "", nil, nil); code != http.StatusOK || said != "OK" {
		t.Errorf("%d %s", code, said)
	}
}
