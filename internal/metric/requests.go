package metric

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	clientmetrics "k8s.io/client-go/tools/metrics"
)

var (
	requestsTotal = Metric{
		Name: "kubevirt_rest_client_requests_total", Kind: Counter, Labels: []string{"code", "method", "host", "resource", "verb"},
		Help: "Requests to the API server. `code` is `<error>` where none was answered with.",
	}
	requestLatency = Metric{
		Name: "kubevirt_rest_client_request_latency_seconds", Kind: Histogram, Labels: []string{"verb", "url"},
		Help: "How long the API server took to begin its answers. In `url` names are left out.",
	}
	limiterLatency = Metric{
		Name: "kubevirt_rest_client_rate_limiter_duration_seconds", Kind: Histogram, Labels: []string{"verb", "url"},
		Help: "How long requests waited since the program sends no more at a time. In `url` names are left out.",
	}

	requests  = requestsTotal.CounterVec()
	latencies = requestLatency.HistogramVec([]float64{.005, .025, .05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60})
	waits     = limiterLatency.HistogramVec(prometheus.ExponentialBuckets(0.001, 2, 10))
)

// Requests lists what is told of requests to the API server.
func Requests() []Metric { return []Metric{requestsTotal, requestLatency, limiterLatency} }

var tellRequests = sync.OnceValue(func() error {
	clientmetrics.RateLimiterLatency = limiter{}
	return errors.Join(Register(requests), Register(latencies), Register(waits))
})

// CountRequests counts what is sent by config's clients that are made from here on.
func CountRequests(config *rest.Config) error {
	if err := tellRequests(); err != nil {
		return err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next} })
	return nil
}

// counted counts what goes through next.
type counted struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	what, begun := requestOf(request.Method, request.URL), time.Now()
	response, err := c.next.RoundTrip(request)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	requests.WithLabelValues(code, request.Method, request.URL.Host, what.resource, what.verb).Inc()
	latencies.WithLabelValues(what.verb, what.url).Observe(time.Since(begun).Seconds())
	return response, err //nolint:wrapcheck // it is another's
}

// WrappedRoundTripper is for who looks through the wrapping, such as client-go where it upgrades connections.
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.next }

// limiter observes what client-go holds back.
type limiter struct{}

// Observe implements client-go's LatencyMetric.
func (limiter) Observe(_ context.Context, method string, u url.URL, waited time.Duration) {
	what := requestOf(method, &u)
	waits.WithLabelValues(what.verb, what.url).Observe(waited.Seconds())
}

// request is what somebody wants of the API server: verb and resource are "none" where it is of none.
type request struct{ resource, verb, url string }

// requestOf reads it off a request's method and address.
func requestOf(method string, u *url.URL) request {
	segments := strings.Split(strings.Trim(u.Path, "/"), "/")
	begin := 0 // of the segments after the version
	switch segments[0] {
	case "api":
		begin = 2
	case "apis":
		begin = 3
	}
	if begin == 0 || len(segments) <= begin {
		return request{resource: "none", verb: "none", url: "/" + segments[0]}
	}
	if segments[begin] == "namespaces" && len(segments) > begin+2 { // of an object in one
		segments[begin+1] = "{namespace}"
		begin += 2
	}
	named := len(segments) > begin+1
	if named {
		segments[begin+1] = "{name}"
		segments = segments[:min(len(segments), begin+3)] // what comes after a subresource may be anything
	}
	return request{resource: segments[begin], verb: verbOf(method, u, named), url: "/" + strings.Join(segments, "/")}
}

// verbOf is the field's word for what a request does; named is one that is about one object.
func verbOf(method string, u *url.URL, named bool) string {
	switch method {
	case http.MethodGet:
		switch {
		case u.Query().Get("watch") == "true" || u.Query().Get("watch") == "1":
			return "WATCH"
		case named:
			return "GET"
		}
		return "LIST"
	case http.MethodPut:
		return "UPDATE"
	case http.MethodPost:
		return "CREATE"
	}
	return method
}
