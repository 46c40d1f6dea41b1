package upload

import (
	"io"
	"net/http"
	"strconv"
	"time"
)

// lingerFor is for how long a sender who is refused in the middle may go on to send.
const lingerFor = 10 * time.Second

// Refuse tells the sender of r why its image is not taken, and drops what still comes for a while:
// a connection that is closed while somebody writes to it loses the answer.
func Refuse(w http.ResponseWriter, r *http.Request, code int, why string) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(why)+1))
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // a test's recorder cannot
	w.WriteHeader(code)
	_, _ = io.WriteString(w, why+"\n") // the sender may be gone
	_ = control.Flush()
	Linger(control, r.Body)
}

// Linger drops what still comes for a while, or until the sender hangs up.
func Linger(control *http.ResponseController, body io.Reader) {
	if body == nil || control.SetReadDeadline(time.Now().Add(lingerFor)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, body)
}
