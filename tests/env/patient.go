package env

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// boundAnswer is how long the API server may be without the answer of somebody whom it asks.
const boundAnswer = 3 * time.Minute

// Words of the API server when somebody whom it had to ask did not answer in time: a webhook, before
// anything was written, and its store, of which only a reader knows that nothing was.
var (
	noWebhook = []byte("failed calling webhook")
	noStore   = []byte("etcdserver: request timed out")
)

// patient is a way to the API server that asks again where somebody had no time to answer it: on a
// busy machine, and just after a kill, a webhook is away for longer than the API server waits. What a
// webhook answers, a refusal too, is passed on.
type patient struct{ http.RoundTripper }

// RoundTrip asks until there is an answer, at most for boundAnswer.
func (p patient) RoundTrip(request *http.Request) (*http.Response, error) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for begun := time.Now(); ; {
		response, err := p.RoundTripper.RoundTrip(request)
		if err != nil || response.StatusCode != http.StatusInternalServerError {
			return response, err
		}
		unanswered, err := unanswered(request.Method, response)
		if err != nil || !unanswered || time.Since(begun) > boundAnswer || request.Body != nil && request.GetBody == nil {
			return response, err
		}
		select {
		case <-request.Context().Done():
			return response, nil
		case <-ticker.C:
		}
		if request = request.Clone(request.Context()); request.Body != nil {
			if request.Body, err = request.GetBody(); err != nil {
				return response, nil // which has an answer
			}
		}
	}
}

// unanswered says whether response tells of somebody who did not answer. It stays readable.
func unanswered(method string, response *http.Response) (bool, error) {
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // it was read
	response.Body = io.NopCloser(bytes.NewReader(body))
	return bytes.Contains(body, noWebhook) || method == http.MethodGet && bytes.Contains(body, noStore), err
}
