package uploadserver

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// silence is for how long a sender may send nothing before it counts as gone.
	silence = 5 * time.Minute
	// patience is the same for a sender that another one waits for, and for requests without an image.
	patience = 30 * time.Second
	// rearm is for how long a deadline is good for the reads that follow: to set one takes as long as to read a little.
	rearm = time.Second
)

// errDismissed ends the upload of a sender that fell silent while another one waits.
var errDismissed = errors.New("nothing came for half a minute, and another sender waits")

// sender is the body of a request whose sender may be slow, but not silent for ever.
type sender struct {
	body    io.Reader
	control *http.ResponseController
	// whole is called once, when all has come; nil does nothing.
	whole func()

	mu        sync.Mutex
	since     time.Time // when the read that waits began; zero when none does
	armed     time.Time // when the connection was given a deadline; zero when it has none
	dismissed bool
	ended     error // what the body's end was, after which the connection is not read again
}

func (s *sender) Read(p []byte) (int, error) {
	if err := s.wait(); err != nil {
		return 0, err
	}
	n, err := s.body.Read(p)
	s.came(err)
	if errors.Is(err, io.EOF) && s.whole != nil {
		s.whole()
	}
	return n, err //nolint:wrapcheck // io.Reader's contract
}

// wait begins a read, unless there is nothing more to read.
func (s *sender) wait() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended != nil:
		return s.ended
	case s.dismissed:
		return errDismissed
	}
	s.since = time.Now()
	if s.since.Sub(s.armed) > rearm {
		s.armed = s.since
		_ = s.control.SetReadDeadline(s.since.Add(silence + rearm)) // best effort: a test's recorder has none
	}
	return nil
}

// came ends a read. Behind the body's end nothing has a deadline: the image is written then.
func (s *sender) came(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
	if err != nil {
		s.ended = err
		_ = s.control.SetReadDeadline(time.Time{})
	}
}

// cut ends the sender's part at once: another connection of his takes the place of this one, or the server goes.
func (s *sender) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return
	}
	s.dismissed = true
	_ = s.control.SetReadDeadline(time.Now())
}

// dismiss ends the upload of a sender that has been silent for longer than patience, and says whether it has.
func (s *sender) dismiss() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() || time.Since(s.since) < patience {
		return s.dismissed
	}
	s.dismissed = true
	_ = s.control.SetReadDeadline(time.Now())
	return true
}
