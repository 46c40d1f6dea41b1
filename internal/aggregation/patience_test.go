package aggregation

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// answers are an API server's to one request after the other, of which the last stands.
type answers struct {
	codes []int
	said  []string
	sent  []string // the bodies of the requests
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	i := min(len(a.sent), len(a.codes)-1)
	a.sent = append(a.sent, string(body))
	return &http.Response{
		StatusCode: a.codes[i], Body: io.NopCloser(strings.NewReader(a.said[i])), Request: r,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
	}, nil
}

// put puts "{}" through a client that bears, and says how long that took.
func put(t *testing.T, server *answers) (time.Duration, error) {
	t.Helper()
	config := &rest.Config{Host: "http://cluster", Transport: server, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}}
	Bear(config)
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	err = c.Put().AbsPath("/apis").Body([]byte("{}")).Do(t.Context()).Error()
	return time.Since(begun), err
}

func TestWhatNobodyGotIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &answers{codes: []int{503, 503, 202}, said: []string{"service unavailable\n", "service unavailable\n", ""}}
		if took, err := put(t, server); err != nil || took != 2*time.Second || strings.Join(server.sent, "") != "{}{}{}" {
			t.Errorf("after %v: %v, sent %q", took, err, server.sent)
		}
	})
}

func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &answers{codes: []int{503}, said: []string{"service unavailable\n"}}
		if took, err := put(t, server); !apierrors.IsServiceUnavailable(err) || took != 10*time.Second || len(server.sent) != 11 {
			t.Errorf("after %v: %v, sent %d times", took, err, len(server.sent))
		}
	})
}

// Somebody may have carried out what was answered otherwise.
func TestWhatSomebodyGotIsSentOnce(t *testing.T) {
	for code, said := range map[int]string{
		503: "error trying to reach service: EOF\n", 500: "service unavailable\n", 504: "service unavailable\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &answers{codes: []int{code}, said: []string{said}}
			_, err := put(t, server)
			status, ok := err.(apierrors.APIStatus) //nolint:errorlint // as client-go returns it
			if !ok || len(server.sent) != 1 || !strings.Contains(status.Status().Details.Causes[0].Message, strings.TrimSpace(said)) {
				t.Errorf("%d %s: %v, sent %d times", code, said, err, len(server.sent))
			}
		})
	}
}
