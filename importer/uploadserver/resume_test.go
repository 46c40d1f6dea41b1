package uploadserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/slipway-vm/slipway/internal/upload"
)

// ramp is what the uploads of these tests are called.
const ramp = "upload-of-a-ramp"

// bring sends a part of the upload called id, from offset on, which is said to have length bytes.
func (s *Server) bring(id string, offset, length int, body io.Reader) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, "/v1beta1/upload", body)
	request.TLS, request.ContentLength = trusted(), int64(length)
	request.Header.Set(upload.HeaderUpload, id)
	request.Header.Set(upload.HeaderOffset, strconv.Itoa(offset))
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	return recorder
}

// came asks how much of the upload called id there is, -1 when there is none.
func (s *Server) came(t *testing.T, id string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request := httptest.NewRequestWithContext(ctx, http.MethodHead, "/v1beta1/upload", nil)
	request.TLS = trusted()
	request.Header.Set(upload.HeaderUpload, id)
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	if recorder.Code == http.StatusNotFound {
		return -1
	}
	n, err := strconv.Atoi(recorder.Header().Get(upload.HeaderOffset))
	if err != nil || recorder.Code != http.StatusOK {
		t.Fatalf("%d %v", recorder.Code, recorder.Header())
	}
	return n
}

// broken brings data, and then its connection breaks.
func broken(data []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrUnexpectedEOF))
}

// until repeats what is refused as long as an earlier upload is being ended.
func until(t *testing.T, send func() *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; <-time.After(10 * time.Millisecond) {
		if answer := send(); answer.Code != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return answer
		}
	}
}

// image is one of three MiB, no two of whose blocks are the same.
func image() []byte {
	data := bytes.Repeat([]byte("a slipway is a ramp "), 3<<20/20+1)[:3<<20]
	for n := 0; n < len(data); n += 4096 {
		copy(data[n:], strconv.Itoa(n))
	}
	return data
}

func TestAnUploadGoesOnWhereItStopped(t *testing.T) {
	s, disk := newServer(t)
	data := image()
	const mib = 1 << 20
	if answer := s.bring(ramp, 0, len(data), broken(data[:mib])); answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), "ask by HEAD") {
		t.Errorf("a connection that breaks: %d %s", answer.Code, answer.Body)
	}
	if n := s.came(t, ramp); n != mib {
		t.Fatalf("%d bytes have come, want %d", n, mib)
	}
	if answer := s.bring(ramp, mib+1, len(data)-mib-1, bytes.NewReader(data[mib+1:])); answer.Code != http.StatusRequestedRangeNotSatisfiable || answer.Header().Get(upload.HeaderOffset) != strconv.Itoa(mib) {
		t.Errorf("a gap: %d %s", answer.Code, answer.Body)
	}
	if answer := s.bring(ramp, mib, mib, bytes.NewReader(data[:mib])); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "3145728 bytes in all") {
		t.Errorf("another file: %d %s", answer.Code, answer.Body)
	}
	if answer := s.bring(ramp, mib, 2*mib, broken(data[mib:2*mib])); answer.Code != http.StatusInternalServerError {
		t.Errorf("one more that breaks: %d %s", answer.Code, answer.Body)
	}
	if answer := s.bring(ramp, s.came(t, ramp), mib, bytes.NewReader(data[2*mib:])); answer.Code != http.StatusOK {
		t.Fatalf("the rest: %d %s", answer.Code, answer.Body)
	}
	if result := <-s.Finished(); result.Digest == "" || result.Downloaded != int64(len(data)) {
		t.Errorf("%+v", result)
	}
	if written, err := os.ReadFile(disk); err != nil || !bytes.Equal(written[:len(data)], data) {
		t.Errorf("the disk is another one: %v", err)
	}
	// Who has not heard the answer asks again.
	if answer := s.bring(ramp, s.came(t, ramp), 0, http.NoBody); answer.Code != http.StatusOK {
		t.Errorf("when all has come: %d %s", answer.Code, answer.Body)
	}
	if answer := s.bring("another-upload", 0, len(data), bytes.NewReader(data)); answer.Code != http.StatusConflict {
		t.Errorf("another one: %d %s", answer.Code, answer.Body)
	}
}

// open sends the beginning of an upload of size bytes by a connection that then stays open and silent. Without an id the
// upload cannot be resumed.
func (s *Server) open(t *testing.T, id string, size int, beginning []byte) net.Conn {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = trusted()
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	request := httptest.NewRequest(http.MethodPost, server.URL+"/v1beta1/upload", io.LimitReader(bytes.NewReader(beginning), int64(len(beginning))))
	request.ContentLength = int64(size)
	if id != "" {
		request.Header.Set(upload.HeaderUpload, id)
	}
	transport, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatalf("the server's client is %+v", server.Client())
	}
	conn, err := (&tls.Dialer{Config: transport.TLSClientConfig}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // it may be closed already
	if err := request.Write(conn); err == nil || !strings.Contains(err.Error(), "ContentLength") {
		t.Fatalf("the beginning is sent: %v", err)
	}
	for deadline := time.Now().Add(3 * time.Minute); s.Progress.Now().Done == 0; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing comes")
		}
	}
	return conn
}

// A connection that is thought to be alive ends with the question how much has come.
func TestAnEarlierConnectionEnds(t *testing.T) {
	s, disk := newServer(t)
	data := image()
	conn := s.open(t, ramp, len(data), data[:1<<20])
	n := s.came(t, ramp)
	if n <= 0 || n > 1<<20 {
		t.Errorf("%d bytes have come", n)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusInternalServerError {
		t.Errorf("the earlier connection: %s", answer.Status)
	}
	if answer := s.bring(ramp, n, len(data)-n, bytes.NewReader(data[n:])); answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	if written, err := os.ReadFile(disk); err != nil || !bytes.Equal(written[:len(data)], data) {
		t.Errorf("the disk is another one: %v", err)
	}
}

// A server that goes takes away what was written of an image that is not whole, before it has gone.
func TestAServerThatGoesLeavesNothing(t *testing.T) {
	data := image()
	for name, begin := range map[string]func(t *testing.T, s *Server){
		"of what comes":                    func(t *testing.T, s *Server) { s.open(t, "", len(data), data[:1<<20]) },
		"of what comes and can be resumed": func(t *testing.T, s *Server) { s.open(t, ramp, len(data), data[:1<<20]) },
		"of what is kept":                  func(_ *testing.T, s *Server) { s.bring(ramp, 0, len(data), broken(data[:1<<20])) },
	} {
		t.Run(name, func(t *testing.T) {
			s, disk := newServer(t)
			s.leaveWithin = 5 * time.Minute // what it has to do takes much less; a busy machine may not
			begin(t, s)
			for deadline := time.Now().Add(3 * time.Minute); ; <-time.After(10 * time.Millisecond) {
				if there, err := os.ReadDir(filepath.Dir(disk)); err != nil || time.Now().After(deadline) {
					t.Fatalf("nothing is written: %v", err)
				} else if len(there) > 0 {
					break
				}
			}
			s.leave()
			if left, err := os.ReadDir(filepath.Dir(disk)); err != nil || len(left) > 0 {
				t.Errorf("left over: %v, %v", left, err)
			}
			if answer := s.bring("another-upload", 0, len(data), bytes.NewReader(data)); answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), "goes") {
				t.Errorf("another one: %d %s", answer.Code, answer.Body)
			}
		})
	}
}

// The last bytes may come while somebody asks, or after he has lost patience; then nothing is left to send.
func TestTheLastBytesComeWhileSomebodyAsks(t *testing.T) {
	for name, patient := range map[string]bool{"who waits": true, "who goes": false} {
		t.Run(name, func(t *testing.T) { comesWhileAsked(t, patient) })
	}
}

func comesWhileAsked(t *testing.T, patient bool) {
	t.Helper()
	k := newKept(ramp, 4, time.Hour)
	from, to := io.Pipe()
	if _, _, ok := k.attach(&sender{body: from, control: http.NewResponseController(httptest.NewRecorder())}, 0); !ok {
		t.Fatal("nobody may send")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read := make(chan string, 1)
	go func() {
		data, err := io.ReadAll(k)
		if err != nil {
			data = []byte(err.Error())
		}
		read <- string(data)
	}()
	if _, err := to.Write([]byte("ra")); err != nil {
		t.Fatal(err)
	}
	settled := func(so func() bool) {
		for now := false; !now; <-time.After(time.Millisecond) {
			k.mu.Lock()
			now = so()
			k.mu.Unlock()
		}
	}
	settled(func() bool { return k.came == 2 && k.reading })
	asked := make(chan int64, 1)
	go func() {
		came, _ := k.pause(ctx)
		asked <- came
	}()
	settled(func() bool { return k.from == nil })
	want := int64(4)
	if !patient {
		cancel()
		settled(func() bool { return k.from != nil })
		want = 2
	}
	if _, err := to.Write([]byte("mp")); err != nil {
		t.Fatal(err)
	}
	if came := <-asked; came != want {
		t.Errorf("%d bytes have come, want %d", came, want)
	}
	select {
	case got := <-read:
		if got != "ramp" {
			t.Errorf("%q was read", got)
		}
	case <-time.After(3 * time.Minute):
		t.Error("it is waited for who has sent all")
	}
}

func TestAKeptUploadMakesRoom(t *testing.T) {
	data := image()
	for name, id := range map[string]string{"for another": "another-upload", "for one that begins anew": ramp} {
		t.Run(name, func(t *testing.T) {
			s, disk := newServer(t)
			s.bring(ramp, 0, len(data), broken(data[:1<<20]))
			send := func() *httptest.ResponseRecorder { return s.bring(id, 0, len(data), bytes.NewReader(data)) }
			if answer := send(); answer.Code != http.StatusServiceUnavailable {
				t.Errorf("%d %s", answer.Code, answer.Body)
			}
			if answer := until(t, send); answer.Code != http.StatusOK {
				t.Fatalf("%d %s", answer.Code, answer.Body)
			}
			if written, err := os.ReadFile(disk); err != nil || !bytes.Equal(written[:len(data)], data) {
				t.Errorf("the disk is another one: %v", err)
			}
		})
	}
}

func TestAnUploadIsKeptForAWhile(t *testing.T) {
	s, disk := newServer(t)
	s.keepFor = 50 * time.Millisecond
	data := image()
	s.bring(ramp, 0, len(data), broken(data[:1<<20]))
	for deadline := time.Now().Add(3 * time.Minute); s.came(t, ramp) >= 0; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is kept for ever")
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(disk), "*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if answer := s.bring(ramp, 1<<20, len(data)-1<<20, bytes.NewReader(data[1<<20:])); answer.Code != http.StatusRequestedRangeNotSatisfiable || answer.Header().Get(upload.HeaderOffset) != "0" {
		t.Errorf("the rest: %d %s", answer.Code, answer.Body)
	}
	if answer := s.bring(ramp, 0, len(data), bytes.NewReader(data)); answer.Code != http.StatusOK {
		t.Errorf("all of it: %d %s", answer.Code, answer.Body)
	}
}

func TestPartsThatMakeNoSense(t *testing.T) {
	s, _ := newServer(t)
	for name, c := range map[string]struct {
		id, offset string
		length     int64
		want       string
	}{
		"a short name":      {"x", "0", 1, "names no upload"},
		"a name with signs": {"../../etc/passwd", "0", 1, "names no upload"},
		"a word":            {ramp, "half", 1, "is no number of bytes"},
		"before the file":   {ramp, "-1", 1, "is no number of bytes"},
		"no length":         {ramp, "0", -1, "write the header Content-Length"},
		"nothing":           {ramp, "", 0, "nothing was sent"},
	} {
		request := httptest.NewRequest(http.MethodPost, "/v1beta1/upload", strings.NewReader("x"))
		request.TLS, request.ContentLength = trusted(), c.length
		request.Header.Set(upload.HeaderUpload, c.id)
		request.Header.Set(upload.HeaderOffset, c.offset)
		recorder := httptest.NewRecorder()
		s.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusBadRequest || !strings.Contains(recorder.Body.String(), c.want) {
			t.Errorf("%s: %d %s, want %s", name, recorder.Code, recorder.Body, c.want)
		}
	}
	for want, header := range map[string]string{"cannot be resumed": upload.HeaderUpload, "write both or none": upload.HeaderOffset} {
		path := map[bool]string{true: "/v1beta1/upload-form", false: "/v1beta1/upload"}[header == upload.HeaderUpload]
		request := httptest.NewRequest(http.MethodPost, path, strings.NewReader("x"))
		request.TLS = trusted()
		request.Header.Set(header, "12345678")
		recorder := httptest.NewRecorder()
		s.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusBadRequest || !strings.Contains(recorder.Body.String(), want) {
			t.Errorf("%s alone to %s: %d %s", header, path, recorder.Code, recorder.Body)
		}
	}
	request := httptest.NewRequest(http.MethodHead, "/v1beta1/upload", nil)
	request.Header.Set(upload.HeaderUpload, ramp)
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusUnauthorized {
		t.Errorf("a stranger asks: %d", recorder.Code)
	}
}
