package env

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// Who does not answer the API server is asked again, with the same request; a refusal is passed on.
func TestAskingAgain(t *testing.T) {
	for name, c := range map[string]struct {
		method, says string
		asked        int32
		status       int
	}{
		"a webhook that does not answer": {http.MethodPost, `failed calling webhook "x": context deadline exceeded`, 2, http.StatusCreated},
		"a store that is read":           {http.MethodGet, "etcdserver: request timed out", 2, http.StatusCreated},
		"a store that is written":        {http.MethodPost, "etcdserver: request timed out", 1, http.StatusInternalServerError},
		"another failure":                {http.MethodPost, `admission webhook "x" denied the request`, 1, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err != nil || string(body) != "an object" {
					t.Errorf("the server was sent %q, %v", body, err)
				}
				if asked.Add(1) > 1 {
					w.WriteHeader(http.StatusCreated)
					return
				}
				http.Error(w, c.says, http.StatusInternalServerError)
			}))
			defer server.Close()
			request, err := http.NewRequestWithContext(t.Context(), c.method, server.URL, strings.NewReader("an object"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := patient{http.DefaultTransport}.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != c.status || asked.Load() != c.asked {
				t.Errorf("asked %d times: %d %q, %v", asked.Load(), response.StatusCode, body, err)
			}
			if c.asked == 1 && !strings.Contains(string(body), c.says) {
				t.Errorf("the answer is %q", body)
			}
		})
	}
}
