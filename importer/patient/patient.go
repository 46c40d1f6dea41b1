// Package patient writes answers for clients that may be slow, but not silent for ever.
package patient

import (
	"net/http"
	"time"
)

// silence is for how long a client may take nothing before it counts as gone.
const silence = 5 * time.Minute

// Writer is w for such a client: a write fails that is not taken for five minutes, however long the answer takes.
func Writer(w http.ResponseWriter) http.ResponseWriter {
	return &writer{ResponseWriter: w, control: http.NewResponseController(w)}
}

type writer struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Write gives the client its time anew.
func (p *writer) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(silence)) // best effort: a test's recorder has none
	return p.ResponseWriter.Write(b)                        //nolint:wrapcheck // io.Writer's contract
}

// Unwrap is for http.ResponseController.
func (p *writer) Unwrap() http.ResponseWriter { return p.ResponseWriter }
