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
	came := 0
	// The proxy may hear that the client broke off before it has sent anything on: then nothing comes any more.
	for deadline := time.Now().Add(3 * time.Minute); came == 0 && time.Now().Before(deadline); {
		s.breakOff(t, qcow2, part(0))
		came = s.came(t, part(0))
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

// breakOff sends half of image to the proxy, whose connection then breaks.
func (s *stage) breakOff(t *testing.T, image []byte, header http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.front.URL+"/v1beta1/upload", &short{bytes.NewReader(image[:len(image)/2])})
	must(t, err)
	request.ContentLength = int64(len(image))
	request.Header = header
	request.Header.Set("Authorization", "Bearer "+s.token(t, debian))
	response, err := s.client.Do(request)
	if err != nil {
		return
	}
	response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable { // the one before it is still being ended
		t.Errorf("an upload that broke off was answered: %s", response.Status)
	}
}

// came watches for a second how much the server has got of an upload that broke off, until that is something. Whoever asks
// ends what is still coming.
func (s *stage) came(t *testing.T, header http.Header) int {
	t.Helper()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		<-time.After(50 * time.Millisecond)
		code, _, told := s.send(t, http.MethodHead, "/v1beta1/upload", s.token(t, debian), nil, header)
		if code != http.StatusOK { // it has heard of nothing yet, or is ending the connection
			continue
		}
		came, err := strconv.Atoi(told.Get(upload.HeaderOffset))
		must(t, err)
		return came
	}
	return 0
}
