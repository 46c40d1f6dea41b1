package subresource

import (
	"math"
	"net/http"
	"strconv"
)

// vsock connects the client's web socket with a program in the guest that listens on a VSOCK port.
func (s *Server) vsock(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	if port, err := strconv.ParseUint(query.Get("port"), 10, 32); err != nil || port == math.MaxUint32 {
		return badRequest("port %q is not a number from 0 to %d; give ?port=", query.Get("port"), uint32(math.MaxUint32-1))
	}
	encrypted := true // in the field, too, when it is left out
	if text := query.Get("tls"); text != "" {
		var err error
		if encrypted, err = strconv.ParseBool(text); err != nil {
			return badRequest("tls %q is neither true nor false", text)
		}
	}
	vmi, err := s.checked(r, hasVSOCK)
	if err != nil {
		return err
	}
	query.Set("tls", strconv.FormatBool(encrypted))
	r.URL.RawQuery = query.Encode()
	return s.handOn(w, r, vmi, "vsock")
}
