package importer_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// bucket serves one object as S3 does, to whom signs his requests with its key.
type bucket struct {
	*httptest.Server
	t        *testing.T
	object   []byte
	path     string // of the object, as text
	key      aws.Credentials
	region   string
	requests atomic.Int64
	parts    atomic.Int64 // requests for a part of the object
	deaths   atomic.Int64 // how many bodies die half way
}

func newBucket(t *testing.T, object []byte) *bucket {
	t.Helper()
	b := &bucket{t: t, object: object, path: "/images/a disk+more=50%.qcow2", region: "us-east-1",
		key: aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret/with+signs"}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *bucket) url() string { return b.URL + (&url.URL{Path: b.path}).EscapedPath() }

func (b *bucket) refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n<Error><Code>%s</Code><Message>no</Message><Region>%s</Region></Error>", code, b.region)
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.requests.Add(1)
	switch code := b.verify(r); {
	case code == "AuthorizationHeaderMalformed":
		b.refuse(w, http.StatusBadRequest, code)
	case code != "":
		b.refuse(w, http.StatusForbidden, code)
	case r.URL.Path != b.path:
		b.refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("Etag", `"5d41402abc4b2a76b9719d911017c592-3"`)
		if r.Header.Get("Range") != "" {
			b.parts.Add(1)
		}
		if b.deaths.Add(-1) >= 0 {
			w = &mortal{ResponseWriter: w, left: 300_000}
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.object))
	}
}

// verify makes the signature that the request must have and compares; it returns S3's word for what is wrong.
func (b *bucket) verify(r *http.Request) string {
	given := r.Header.Get("Authorization")
	if b.key.AccessKeyID == "" && given == "" {
		return "" // a public bucket
	}
	rest, ok := strings.CutPrefix(given, "AWS4-HMAC-SHA256 Credential="+b.key.AccessKeyID+"/")
	if !ok {
		return "AccessDenied"
	}
	if parts := strings.Split(rest, "/"); parts[1] != b.region {
		return "AuthorizationHeaderMalformed"
	}
	_, rest, _ = strings.Cut(rest, "SignedHeaders=")
	names, _, _ := strings.Cut(rest, ",")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > 15*time.Minute {
		return "RequestTimeTooSkewed"
	}
	again, err := http.NewRequest(r.Method, "http://"+r.Host, nil)
	if err != nil {
		b.t.Error(err)
	}
	again.URL.Path, again.URL.RawPath = r.URL.Path, httpbinding.EscapePath(r.URL.Path, false)
	for name := range strings.SplitSeq(names, ";") {
		if name != "host" && name != "x-amz-security-token" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header[http.CanonicalHeaderKey(name)]
		}
	}
	if got := r.Header.Get("X-Amz-Security-Token"); got != b.key.SessionToken {
		return "InvalidToken"
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(r.Context(), b.key, again, r.Header.Get("X-Amz-Content-Sha256"), "s3", b.region, at); err != nil {
		b.t.Error(err)
	}
	if again.Header.Get("Authorization") != given || r.Header.Get("Range") != "" && !strings.Contains(names, "range") {
		return "SignatureDoesNotMatch"
	}
	return ""
}

// secret is a mounted Secret.
func secret(t *testing.T, keys map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, value := range keys {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600))
	}
	return dir
}

// runPod imports as a pod does and returns its result, and the disk's path.
func runPod(t *testing.T, options importer.PodOptions) (transfer.Result, string) {
	t.Helper()
	dir := t.TempDir()
	options.Target.Path = filepath.Join(dir, "disk.img")
	options.TerminationLog = filepath.Join(t.TempDir(), "log")
	failure := importer.RunPod(t.Context(), options)
	data, err := os.ReadFile(options.TerminationLog)
	must(t, err)
	result, err := transfer.Decode(string(data))
	must(t, err)
	if (failure == nil) != (result.Reason == "") {
		t.Errorf("the pod ends with %v and tells of %+v", failure, result)
	}
	if failure == nil {
		imported{result, nil, options.Target.Path}.wantDisk(t, newDisk(), diskSize)
	}
	return result, options.Target.Path
}

func TestS3(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	image, err := os.ReadFile(qcow2(t, raw, raw+".qcow2"))
	must(t, err)
	keys := func(b *bucket) map[string]string {
		return map[string]string{"accessKeyId": b.key.AccessKeyID, "secretKey": b.key.SecretAccessKey + "\n"}
	}
	pod := func(b *bucket, credentials map[string]string) importer.PodOptions {
		o := importer.PodOptions{URL: b.url(), Server: transfer.SourceS3}
		if credentials != nil {
			o.CredentialsDir = secret(t, credentials)
		}
		return o
	}
	t.Run("with a key, over connections that break", func(t *testing.T) {
		b := newBucket(t, image)
		b.deaths.Store(3)
		if result, _ := runPod(t, pod(b, keys(b))); result.Reason != "" {
			t.Fatal(result.Message)
		}
		if b.parts.Load() < 5 {
			t.Errorf("the object came in %d parts", b.parts.Load())
		}
	})
	t.Run("with a key that is good for a while", func(t *testing.T) {
		b := newBucket(t, image)
		b.key.SessionToken = "temporary//token=="
		credentials := keys(b)
		credentials["sessionToken"] = b.key.SessionToken
		if result, _ := runPod(t, pod(b, credentials)); result.Reason != "" {
			t.Fatal(result.Message)
		}
		if result, _ := runPod(t, pod(b, keys(b))); result.Reason != transfer.Unauthorized || !strings.Contains(result.Message, "InvalidToken") {
			t.Errorf("without the token: %+v", result)
		}
	})
	t.Run("in public", func(t *testing.T) {
		b := newBucket(t, image)
		b.key = aws.Credentials{}
		if result, _ := runPod(t, pod(b, nil)); result.Reason != "" {
			t.Fatal(result.Message)
		}
	})
	t.Run("in a region that is not named", func(t *testing.T) {
		b := newBucket(t, image)
		address := b.url()
		b.region = "eu-north-1"
		o := pod(b, keys(b))
		o.URL = address
		if result, _ := runPod(t, o); result.Reason != "" {
			t.Fatal(result.Message)
		}
	})
	for name, c := range map[string]struct {
		change func(*bucket, map[string]string)
		reason transfer.Reason
		words  string
	}{
		"with a wrong key":               {func(_ *bucket, k map[string]string) { k["secretKey"] = "wrong" }, transfer.Unauthorized, "SignatureDoesNotMatch"},
		"with another's key":             {func(_ *bucket, k map[string]string) { k["accessKeyId"] = "other" }, transfer.Unauthorized, "AccessDenied"},
		"with half a key":                {func(_ *bucket, k map[string]string) { delete(k, "secretKey") }, transfer.BadRequest, "secretKey"},
		"with an empty key":              {func(_ *bucket, k map[string]string) { k["secretKey"] = " " }, transfer.BadRequest, "empty"},
		"with an object that is nowhere": {func(b *bucket, _ map[string]string) { b.path = "/images/none" }, transfer.NotFound, "NoSuchKey"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBucket(t, image)
			credentials := keys(b)
			address := b.url()
			c.change(b, credentials)
			o := pod(b, credentials)
			o.URL = address
			result, _ := runPod(t, o)
			if result.Reason != c.reason || !strings.Contains(result.Message, c.words) {
				t.Errorf("the pod tells of %+v", result)
			}
			if strings.Contains(result.Message, b.key.SecretAccessKey) || strings.Contains(result.Message, "wrong") {
				t.Errorf("the message has the key: %s", result.Message)
			}
		})
	}
	t.Run("that points elsewhere", func(t *testing.T) {
		b := newBucket(t, image)
		elsewhere := handle(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, b.url(), http.StatusTemporaryRedirect)
		})
		o := pod(b, keys(b))
		o.URL = elsewhere
		if result, _ := runPod(t, o); result.Reason != transfer.BadRequest || !strings.Contains(result.Message, b.URL) || b.requests.Load() > 0 {
			t.Errorf("after %d requests the pod tells of %+v", b.requests.Load(), result)
		}
	})
}

// google serves one object and gives tokens to those who have the account's key.
func google(t *testing.T) (server *httptest.Server, key string, tokens *atomic.Int64) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	tokens = &atomic.Int64{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.PostFormValue("grant_type"), "jwt-bearer") || !signedBy(private, r.PostFormValue("assertion")) {
			http.Error(w, `{"error": "invalid_grant"}`, http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": "token-%d", "token_type": "Bearer", "expires_in": 3600}`, tokens.Add(1))
	})
	mux.HandleFunc("GET /images/disk.raw", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token-1" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Etag", `"1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(newDisk()))
	})
	server = httptest.NewServer(mux)
	t.Cleanup(server.Close)
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "images@project.iam.gserviceaccount.com", "private_key_id": "1", "token_uri": server.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	must(t, err)
	return server, string(text), tokens
}

// signedBy checks the signature of a JSON web token.
func signedBy(key *rsa.PrivateKey, token string) bool {
	dot := strings.LastIndexByte(token, '.')
	sum := sha256.Sum256([]byte(token[:max(dot, 0)]))
	raw, err := base64.RawURLEncoding.DecodeString(token[dot+1:])
	return err == nil && rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], raw) == nil
}

func TestGoogleCloudStorage(t *testing.T) {
	server, key, tokens := google(t)
	_, another, _ := google(t)
	_, ours, _ := strings.Cut(key, `"token_uri":"`)
	_, theirs, _ := strings.Cut(another, `"token_uri":"`)
	stranger := strings.Replace(another, theirs, ours, 1) // another's private key for this server
	for name, c := range map[string]struct {
		secret map[string]string
		reason transfer.Reason
		words  string
	}{
		"with a key":           {map[string]string{"credentials.json": key}, "", ""},
		"without a key":        {nil, transfer.Unauthorized, "401"},
		"with a stranger's":    {map[string]string{"credentials.json": stranger}, transfer.Unauthorized, "images@project.iam.gserviceaccount.com"},
		"with no such key":     {map[string]string{"accessKeyId": "x"}, transfer.BadRequest, "credentials.json"},
		"with what is no key":  {map[string]string{"credentials.json": `{"type": "authorized_user"}`}, transfer.BadRequest, "no key of a service account"},
		"with a key that lies": {map[string]string{"credentials.json": strings.Replace(key, "BEGIN PRIVATE", "BEGIN PUBLIC", 1)}, transfer.BadRequest, "no key of a service account"},
	} {
		t.Run(name, func(t *testing.T) {
			tokens.Store(0)
			o := importer.PodOptions{URL: server.URL + "/images/disk.raw", Server: transfer.SourceGCS}
			if c.secret != nil {
				o.CredentialsDir = secret(t, c.secret)
			}
			result, _ := runPod(t, o)
			if result.Reason != c.reason || !strings.Contains(result.Message, c.words) {
				t.Errorf("the pod tells of %+v", result)
			}
			if got := tokens.Load(); c.reason == "" && got != 1 {
				t.Errorf("%d tokens were asked for", got)
			}
		})
	}
}
