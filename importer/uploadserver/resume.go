package uploadserver

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
)

// part is what a request with upload.HeaderUpload brings: of which upload, from which byte on, of how many in all.
type part struct {
	id           string
	offset, size int64
}

// uploadID is how a sender names his upload.
var uploadID = regexp.MustCompile(`^[A-Za-z0-9-]{8,64}$`)

// partOf reads r's headers. The message of why is empty, or says what is wrong with them.
func partOf(r *http.Request) (p part, why string) {
	p.id = r.Header.Get(upload.HeaderUpload)
	if !uploadID.MatchString(p.id) {
		return p, fmt.Sprintf("the header %s names no upload; write 8 to 64 letters, digits and hyphens", upload.HeaderUpload)
	}
	if offset := r.Header.Get(upload.HeaderOffset); offset != "" {
		var err error
		if p.offset, err = strconv.ParseInt(offset, 10, 64); err != nil || p.offset < 0 {
			return p, fmt.Sprintf("the header %s is no number of bytes; write how many have come", upload.HeaderOffset)
		}
	}
	if r.ContentLength < 0 {
		return p, "what is sent is of unknown length; write the header Content-Length, or leave " + upload.HeaderUpload + " out"
	}
	p.size = p.offset + r.ContentLength
	return p, ""
}

// tellOffset says how many bytes of an upload have come. Nothing more comes by an earlier connection then.
func (s *Server) tellOffset(w http.ResponseWriter, r *http.Request) {
	if !s.known(r) {
		upload.Refuse(w, r, http.StatusUnauthorized, "images are taken from cdi-uploadproxy alone")
		return
	}
	k := s.keptAs(r.Header.Get(upload.HeaderUpload))
	if k == nil {
		upload.Refuse(w, r, http.StatusNotFound, "nothing of the upload is here; send the image from its beginning")
		return
	}
	came, err := k.pause(r.Context())
	if err != nil {
		upload.Refuse(w, r, http.StatusServiceUnavailable, "the earlier connection is being ended; try again")
		return
	}
	w.Header().Set(upload.HeaderOffset, strconv.FormatInt(came, 10))
}

// keptAs is the upload that its sender calls id, nil when it is not the last one.
func (s *Server) keptAs(id string) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == waiting || s.kept == nil || s.kept.id != id {
		return nil
	}
	return s.kept
}

// serveKept takes an image, or the rest of one, from a sender who may come again when his connection breaks.
func (s *Server) serveKept(w http.ResponseWriter, r *http.Request, async bool) {
	p, why := partOf(r)
	if why != "" {
		upload.Refuse(w, r, http.StatusBadRequest, why)
		return
	}
	control := http.NewResponseController(w)
	from, answered := &sender{body: r.Body, control: control}, false
	if async {
		from.whole = func() {
			answered = true
			accept(w, control)
		}
	}
	k, gone, refusal := s.join(r.Context(), p, from)
	if refusal != nil {
		if refusal.came >= 0 {
			w.Header().Set(upload.HeaderOffset, strconv.FormatInt(refusal.came, 10))
		}
		upload.Refuse(w, r, refusal.code, refusal.why)
		return
	}
	select {
	case <-k.done:
	case <-gone: // nobody may be there to read this
		upload.Refuse(w, r, http.StatusInternalServerError, "the connection broke; ask by HEAD how many bytes have come, and go on there")
		return
	}
	switch {
	case answered:
	case k.err != nil:
		upload.Refuse(w, r, statusOf(k.err), "Saving stream failed: "+k.err.Error())
	default:
		w.WriteHeader(http.StatusOK)
	}
}

// refusal is why a part of an upload is not taken. came is how many bytes have, -1 when that is of no use.
type refusal struct {
	code int
	why  string
	came int64
}

// join lets from bring his part: of the upload that is kept for him, or of a new one.
func (s *Server) join(ctx context.Context, p part, from *sender) (*kept, <-chan struct{}, *refusal) {
	if k := s.keptAs(p.id); k != nil {
		return goOn(ctx, k, p, from)
	}
	if p.offset > 0 {
		return nil, nil, &refusal{http.StatusRequestedRangeNotSatisfiable, "nothing of the upload is here any more; send the image from its beginning", 0}
	}
	k := newKept(p.id, p.size, s.keepFor)
	gone, _, _ := k.attach(from, 0)
	if code, why := s.begin(k); code != http.StatusOK {
		return nil, nil, &refusal{code, why, -1}
	}
	go s.run(ctx, k)
	return k, gone, nil
}

// goOn lets from go on with k where it stopped.
func goOn(ctx context.Context, k *kept, p part, from *sender) (*kept, <-chan struct{}, *refusal) {
	came, err := k.pause(ctx)
	switch {
	case err != nil:
		return nil, nil, &refusal{http.StatusServiceUnavailable, "the earlier connection is being ended; try again", -1}
	case p.offset == 0 && came > 0 && came < k.size:
		k.end(errAnew)
		return nil, nil, &refusal{http.StatusServiceUnavailable, "what has come of the upload is being dropped; try again", -1}
	case p.size != k.size:
		return nil, nil, &refusal{http.StatusBadRequest, fmt.Sprintf("the upload has %d bytes in all, not %d", k.size, p.size), came}
	}
	gone, came, ok := k.attach(from, p.offset)
	if !ok {
		return nil, nil, &refusal{http.StatusRequestedRangeNotSatisfiable, fmt.Sprintf("%d bytes of the upload have come; go on there", came), came}
	}
	return k, gone, nil
}

// run writes what k brings onto the claim, whatever becomes of who began it.
func (s *Server) run(ctx context.Context, k *kept) {
	ctx, cancel := s.outliving(ctx)
	defer cancel()
	options := s.Import
	options.Stream = &importer.Stream{Reader: k, Size: k.size}
	result, err := importer.Run(ctx, options, s.Progress)
	if err == nil {
		err = s.Record(result)
	}
	if err != nil {
		err = fmt.Errorf("receiving an image: %w", err)
		log.FromContext(ctx).Error(err, "upload failed", "reason", transfer.ReasonOf(err))
	}
	s.end(result, err)
	k.finish(err)
}
