package uploadproxy_test

import (
	"bytes"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/internal/upload"
)

// An upload whose connection broke on its way to the proxy goes on where it stopped, with another token.
func TestAnUploadIsResumedThroughTheProxy(t *testing.T) {
	s := newStage(t)
	disk := newDisk()
	qcow2 := converted(t, disk, "qemu-img", "qemu-utils", "convert", "-f", "raw", "-O", "qcow2")
	part := func(offset int) http.Header {
		return http.Header{upload.HeaderUpload: {"upload-of-debian"}, upload.HeaderOffset: {strconv.Itoa(offset)}}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.front.URL+"/v1beta1/upload", &short{bytes.NewReader(qcow2[:len(qcow2)/2])})
	must(t, err)
	request.ContentLength = int64(len(qcow2))
	request.Header = part(0)
	request.Header.Set("Authorization", "Bearer "+s.token(t, debian))
	if response, err := s.client.Do(request); err == nil {
		response.Body.Close()
		t.Errorf("an upload that broke off was answered: %s", response.Status)
	}
	came := 0
	for deadline := time.Now().Add(3 * time.Minute); came == 0 && time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		code, _, header := s.send(t, http.MethodHead, "/v1beta1/upload", s.token(t, debian), nil, part(0))
		if code == http.StatusOK {
			came, err = strconv.Atoi(header.Get(upload.HeaderOffset))
			must(t, err)
		}
	}
	if came <= 0 || came > len(qcow2)/2 {
		t.Fatalf("%d of %d bytes have come", came, len(qcow2)/2)
	}
	t.Logf("it goes on after %d of %d bytes", came, len(qcow2))
	if code, said, _ := s.send(t, http.MethodPost, "/v1beta1/upload", s.token(t, debian), bytes.NewReader(qcow2[came:]), part(came)); code != http.StatusOK {
		t.Fatalf("%d %s", code, said)
	}
	s.wantDisk(t, disk, "qcow2")
}
