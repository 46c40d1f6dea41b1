package uploadserver

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
)

// post sends body to path, as cdi-uploadproxy does.
func (s *Server) post(path, kind, id string, body io.Reader, size int64) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, path, body)
	request.TLS, request.ContentLength = trusted(), size
	request.Header.Set("Content-Type", kind)
	if id != "" {
		request.Header.Set(upload.HeaderUpload, id)
	}
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	return recorder
}

// What is wrong with an image whose sender was answered when it had come is known to the controller, until another comes.
func TestWhyAnImageIsOfNoUseIsTold(t *testing.T) {
	half := append([]byte("QFI\xfb\x00\x00\x00\x03"), make([]byte, 1<<20)...) // a header that says nothing
	for name, id := range map[string]string{"once": "", "and can be resumed": ramp} {
		t.Run(name, func(t *testing.T) {
			s, _ := newServer(t)
			if answer := s.post("/v1beta1/upload-async", "", id, bytes.NewReader(half), int64(len(half))); answer.Code != http.StatusOK && answer.Code != http.StatusBadRequest {
				t.Fatalf("%d %s", answer.Code, answer.Body)
			}
			for deadline := time.Now().Add(3 * time.Minute); s.Progress.Now().Reason == ""; <-time.After(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("nobody says that the image is of no use")
				}
			}
			if now := s.Progress.Now(); now.Reason.Retryable() || now.Message == "" || now.Done != 0 {
				t.Errorf("%+v", now)
			}
			s.bring(ramp, 0, 1<<20, broken(image()[:1<<10]))
			for deadline := time.Now().Add(3 * time.Minute); s.Progress.Now().Done == 0; <-time.After(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("nothing of the next one comes: %+v", s.Progress.Now())
				}
			}
			if now := s.Progress.Now(); now.Reason != "" {
				t.Errorf("the next one is said to have failed: %+v", now)
			}
			s.leave()
		})
	}
}

// A form is answered as any other image, and has come when it has come to its end.
func TestAFormIsAnsweredWhenItHasCome(t *testing.T) {
	data := image()
	form := &bytes.Buffer{}
	writer := multipart.NewWriter(form)
	part, err := writer.CreateFormFile(upload.FormField, "disk.img")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := writer.WriteField("button", "Send"); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	whole := form.Bytes()
	t.Run("before the disk is whole", func(t *testing.T) {
		s, _ := newServer(t)
		recorded, answered := make(chan struct{}), make(chan bool, 1)
		s.Record = func(transfer.Result) error { <-recorded; return nil }
		request := httptest.NewRequest(http.MethodPost, "/v1beta1/upload-form-async", bytes.NewReader(whole))
		request.TLS = trusted()
		request.Header.Set("Content-Type", writer.FormDataContentType())
		go func() {
			s.ServeHTTP(telling{httptest.NewRecorder(), answered}, request)
			close(answered)
		}()
		select {
		case <-answered:
		case <-time.After(3 * time.Minute):
			t.Error("it is answered when the disk is whole")
		}
		if now := s.Progress.Now(); now.Total != int64(len(whole)) && now.Total != now.Done {
			t.Errorf("its progress is %+v", now)
		}
		close(recorded)
		<-s.Finished()
	})
	t.Run("not when it breaks off behind the file", func(t *testing.T) {
		s, _ := newServer(t)
		cut := len(whole) - 40
		answer := s.post("/v1beta1/upload-form", writer.FormDataContentType(), "", io.MultiReader(bytes.NewReader(whole[:cut]), broken(nil)), int64(len(whole)))
		if answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), "the sender went away") {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
	})
}

// telling tells that an answer was begun.
type telling struct {
	*httptest.ResponseRecorder
	begun chan<- bool
}

func (t telling) WriteHeader(code int) {
	t.ResponseRecorder.WriteHeader(code)
	t.begun <- code == http.StatusOK
}

// The progress of what comes in something larger is measured by that.
func TestTheProgressOfAFormHasATotal(t *testing.T) {
	progress := importer.NewProgress()
	s, _ := newServer(t)
	s.Progress = progress
	from, to := io.Pipe()
	kind := make(chan string, 1)
	go func() {
		writer := multipart.NewWriter(to)
		kind <- writer.FormDataContentType()
		if part, err := writer.CreateFormFile(upload.FormField, "disk.img"); err == nil {
			_, _ = part.Write(make([]byte, 1<<20)) // it errs when the test is over
		}
	}()
	ended := make(chan struct{})
	go func() {
		s.post("/v1beta1/upload-form", <-kind, "", from, 3<<20)
		close(ended)
	}()
	for deadline := time.Now().Add(3 * time.Minute); progress.Now().Done < 1<<19; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", progress.Now())
		}
	}
	if now := progress.Now(); now.Total != 3<<20 {
		t.Errorf("%+v", now)
	}
	_ = to.CloseWithError(io.ErrUnexpectedEOF) // it never errs
	<-ended
}
