package importer

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// Progress is how far an import is. Many goroutines may read it while one import sets it.
type Progress struct {
	mu     sync.Mutex
	now    func() transfer.Progress
	ended  chan struct{}
	finite sync.Once
}

// NewProgress returns the progress of an import that has not begun.
func NewProgress() *Progress {
	return &Progress{now: func() transfer.Progress { return transfer.Progress{} }, ended: make(chan struct{})}
}

// Now returns the bytes that are done and the bytes of the whole work.
func (p *Progress) Now() transfer.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now()
}

// follow makes now the measure.
func (p *Progress) follow(now func() transfer.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
}

func (p *Progress) finish() {
	last := p.Now()
	last.Total = max(last.Total, last.Done, 1)
	last.Done = last.Total
	p.follow(func() transfer.Progress { return last })
	p.end()
}

// Reset says that nothing is done: what was, is of no use.
func (p *Progress) Reset() { p.follow(func() transfer.Progress { return transfer.Progress{} }) }

// Fail says that nothing is done, and why.
func (p *Progress) Fail(err error) {
	why := transfer.Progress{Reason: transfer.ReasonOf(err), Message: err.Error()}
	p.follow(func() transfer.Progress { return why })
}

// end ends the streams, whether the import was finished or not.
func (p *Progress) end() { p.finite.Do(func() { close(p.ended) }) }

// Handler streams the progress, a line of JSON (transfer.Progress) whenever it has changed,
// at most once a second, to whoever knows the token. It ends when the import does.
func (p *Progress) Handler(token string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+transfer.ProgressPath, func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" || subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		p.stream(w, r)
	})
	return mux
}

func (p *Progress) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	encoder := json.NewEncoder(w)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last := transfer.Progress{Done: -1}
	for {
		if now := p.Now(); now != last {
			if encoder.Encode(now) != nil || flush.Flush() != nil {
				return
			}
			last = now
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-p.ended:
			_ = encoder.Encode(p.Now()) // the listener may be gone already
			return
		}
	}
}
