// Package uploadserver is what runs in the pod of a claim that waits for an upload: it takes one
// image, from cdi-uploadproxy alone, and writes it onto the claim as it comes; or an archive, which it
// unpacks there. A failed upload leaves nothing on the claim, and may be tried again; the server ends
// when an image is whole.
package uploadserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
)

// state is how far the server is.
type state int

const (
	waiting   state = iota
	receiving       // an image comes
	done            // it is whole; no other is taken
)

// Server takes an image. Its requests come by TLS, whose clients were verified when they showed a certificate.
type Server struct {
	// Import says where the image goes.
	Import importer.Options
	// Client is the common name of who may send.
	Client string
	// Progress is kept up to date.
	Progress *importer.Progress
	// Record writes the result of an image that is whole, before its sender is told.
	Record func(transfer.Result) error

	keepFor     time.Duration // for how long an upload is kept whose sender went away
	farewell    time.Duration // as the constant of the name says, and the next one
	leaveWithin time.Duration

	mu       sync.Mutex
	state    state
	coming   incoming             // the image that comes
	kept     *kept                // the last upload that may be resumed, while it comes or is whole
	leaving  bool                 // no other image is taken
	over     chan struct{}        // closed when nothing is written of the image that came last; nil before the first
	abandon  context.CancelFunc   // ends the writing of it
	finished chan transfer.Result // of one element
}

// incoming is an image that comes.
type incoming interface {
	// dismiss ends it for the sake of another if its sender is silent, and says whether it has.
	dismiss() bool
	// cut ends it at once, unless all of it has come.
	cut()
}

// New returns a server that writes to where options say, for the client of that name.
func New(options importer.Options, client string, progress *importer.Progress, record func(transfer.Result) error) *Server {
	return &Server{
		Import: options, Client: client, Progress: progress, Record: record,
		keepFor: keepFor, farewell: farewell, leaveWithin: leaveWithin, finished: make(chan transfer.Result, 1),
	}
}

// Finished gives the result of the image that is whole.
func (s *Server) Finished() <-chan transfer.Result { return s.finished }

// ServeHTTP answers health checks of everybody, and takes images from the one client. One that is
// sent asynchronously is answered once it has come; what is wrong with it then shows in the DataVolume.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(patience)) // best effort, as below: a test's recorder has none
	if r.URL.Path == upload.PathHealth {
		_, _ = io.WriteString(w, "OK") // who asks may be gone
		return
	}
	found, form, async := upload.IsPath(r.URL.Path)
	switch head := r.Method == http.MethodHead; {
	case found && head && !form && r.Header.Get(upload.HeaderUpload) != "":
		s.tellOffset(w, r)
	case found && head && async: // yes, it can be sent there
	case !found || r.Method != http.MethodPost:
		upload.Refuse(w, r, http.StatusNotFound, "images are taken by POST")
	case !s.known(r):
		upload.Refuse(w, r, http.StatusUnauthorized, "images are taken from cdi-uploadproxy alone")
	default:
		s.take(w, r, form, async)
	}
}

// take takes an image, or a part of one, as its headers say.
func (s *Server) take(w http.ResponseWriter, r *http.Request, form, async bool) {
	log.FromContext(r.Context()).V(2).Info("Something is sent", "bytes", r.ContentLength, "form", form, "async", async, "offset", r.Header.Get(upload.HeaderOffset))
	switch named := r.Header.Get(upload.HeaderUpload) != ""; {
	case r.Header.Get("X-Cdi-Content-Type") != "":
		upload.Refuse(w, r, http.StatusBadRequest, "the header x-cdi-content-type is not supported; send a disk image without it")
	case named && form:
		upload.Refuse(w, r, http.StatusBadRequest, "a form cannot be resumed; send the image without one, or leave the header "+upload.HeaderUpload+" out")
	case named:
		s.serveKept(w, r, async)
	case r.Header.Get(upload.HeaderOffset) != "":
		upload.Refuse(w, r, http.StatusBadRequest, "the header "+upload.HeaderOffset+" needs "+upload.HeaderUpload+", which says of what upload; write both or none")
	default:
		s.serveOnce(w, r, form, async)
	}
}

// serveOnce takes an image from a sender whose connection must not break.
func (s *Server) serveOnce(w http.ResponseWriter, r *http.Request, form, async bool) {
	control := http.NewResponseController(w)
	from := &sender{body: r.Body, control: control}
	if code, why := s.begin(from); code != http.StatusOK {
		upload.Refuse(w, r, code, why)
		return
	}
	answered := false
	if async {
		from.whole = func() {
			answered = true
			accept(w, control)
		}
	}
	result, err := s.receive(r, form, from)
	if err == nil {
		err = s.Record(result)
	}
	s.end(result, err)
	switch {
	case err != nil:
		log.FromContext(r.Context()).Error(err, "upload failed", "reason", transfer.ReasonOf(err))
		if !answered {
			upload.Refuse(w, r, statusOf(err), "Saving stream failed: "+err.Error())
		}
		return
	case !answered:
		w.WriteHeader(http.StatusOK)
	}
}

// accept answers that an image has come, before it is written.
func accept(w http.ResponseWriter, control *http.ResponseController) {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	_ = control.Flush() // who asked may be gone
}

// known says whether r comes from the one client. That its certificate is of our authority was verified with TLS.
func (s *Server) known(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && r.TLS.PeerCertificates[0].Subject.CommonName == s.Client
}

func (s *Server) begin(coming incoming) (code int, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.leaving:
		return http.StatusServiceUnavailable, "the upload server goes; try again when the claim has another"
	case s.state == done:
		return http.StatusConflict, "the claim is filled already"
	case s.state == receiving && s.coming.dismiss():
		return http.StatusServiceUnavailable, "another upload to the claim has fallen silent and is being ended; try again"
	case s.state == receiving:
		return http.StatusServiceUnavailable, "another upload to the claim is under way; wait for its end"
	}
	s.state, s.coming, s.kept, s.over = receiving, coming, nil, make(chan struct{})
	if k, may := coming.(*kept); may {
		s.kept = k
	}
	s.Progress.Reset()
	return http.StatusOK, ""
}

// end notes how the image that came has ended, of which nothing is written any more.
func (s *Server) end(result transfer.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(s.over)
	if err == nil {
		s.state = done
		s.finished <- result
		return
	}
	s.state, s.kept = waiting, nil
	if errors.Is(err, errAnew) || errors.Is(err, errDismissed) {
		s.Progress.Reset() // another comes in its place
		return
	}
	s.Progress.Fail(err) // its sender may have been answered before that was known
}

// outliving is ctx for the writing of an image, which goes on without its sender until cancel is called or the server must
// go.
func (s *Server) outliving(ctx context.Context) (longer context.Context, cancel context.CancelFunc) {
	longer, cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandon = cancel
	return longer, cancel
}

// leave takes no other image, ends the one that comes, and waits until what was written of it is gone. One that has come
// gets half of the time to be finished.
func (s *Server) leave() {
	s.mu.Lock()
	s.leaving = true
	if s.state == receiving {
		s.coming.cut()
	}
	over := s.over
	s.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
		return
	case <-time.After(s.leaveWithin / 2):
	}
	s.mu.Lock()
	if s.abandon != nil {
		s.abandon()
	}
	s.mu.Unlock()
	select {
	case <-over:
	case <-time.After(s.leaveWithin / 2):
	}
}

// receive writes what r brings onto the claim. A sender that goes away while his image comes ends
// it; an image that has come is finished without him.
func (s *Server) receive(r *http.Request, form bool, from *sender) (transfer.Result, error) {
	stream := importer.Stream{Reader: from, Size: r.ContentLength}
	if form {
		sent := r.WithContext(r.Context())
		sent.Body = io.NopCloser(from)
		part, err := fileOf(sent)
		if err != nil {
			return transfer.Result{}, err
		}
		stream = importer.Stream{Reader: &fileInForm{part, from}, Size: -1, About: r.ContentLength}
	}
	options := s.Import
	options.Stream = &stream
	ctx, cancel := s.outliving(r.Context())
	defer cancel()
	result, err := importer.Run(ctx, options, s.Progress)
	if err != nil {
		return result, fmt.Errorf("receiving an image: %w", err)
	}
	return result, nil
}

// statusOf is what the sender is told: 400 when another image or a larger claim helps.
func statusOf(err error) int {
	switch reason := transfer.ReasonOf(err); {
	case !reason.Retryable(), reason == transfer.NoSpace:
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}
