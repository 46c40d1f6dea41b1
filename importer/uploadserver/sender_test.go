package uploadserver

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// connection notes the deadlines that it is given.
type connection struct {
	*httptest.ResponseRecorder

	deadlines []time.Time
}

func (c *connection) SetReadDeadline(at time.Time) error {
	c.deadlines = append(c.deadlines, at)
	return nil
}

// A sender may be silent for as long after each read, and his connection is not given a deadline for each.
func TestADeadlineIsGoodForTheReadsThatFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connection{ResponseRecorder: httptest.NewRecorder()}
		s := &sender{body: bytes.NewReader(make([]byte, 5)), control: http.NewResponseController(c)}
		read := func(want int) {
			t.Helper()
			_, err := s.Read(make([]byte, 1))
			if err != nil && want > 0 {
				t.Fatal(err)
			}
			last := c.deadlines[len(c.deadlines)-1]
			switch left := time.Until(last); {
			case want == 0 && !last.IsZero():
				t.Errorf("behind the end there is a deadline in %s", left)
			case want > 0 && (len(c.deadlines) != want || left < silence || left > silence+rearm):
				t.Errorf("%d deadlines, the last in %s; want %d, in %s to %s", len(c.deadlines), left, want, silence, silence+rearm)
			}
		}
		read(1)
		time.Sleep(rearm / 2)
		read(1)
		time.Sleep(rearm)
		read(2)
		time.Sleep(silence)
		read(3)
		read(3)
		read(0)
	})
}
