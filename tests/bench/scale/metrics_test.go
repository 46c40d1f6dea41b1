//go:build e2e

package scale

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// queue is the name of the queue of machines in virt-controller's metrics.
const queue = `name="virtualmachineinstance"`

// metrics are those of virt-controller that are of interest.
type metrics struct {
	// heap is what is allocated, in bytes; writes is how often the API was written to.
	heap, writes float64
	waits        histogram
	// waited is the sum of the waits, in seconds.
	waited float64
}

// bucket counts the values up to a bound in seconds.
type bucket struct{ bound, count float64 }

type histogram []bucket

// with is h with count more up to bound: there may be several series.
func (h histogram) with(bound, count float64) histogram {
	for i := range h {
		if h[i].bound == bound {
			h[i].count += count
			return h
		}
	}
	return append(h, bucket{bound, count})
}

// since is what came to h after before.
func (h histogram) since(before histogram) histogram {
	out := slices.Clone(h)
	for i := range out {
		for _, b := range before {
			if b.bound == out[i].bound {
				out[i].count -= b.count
			}
		}
	}
	return out
}

// count is how many values there are.
func (h histogram) count() float64 {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].count
}

// percentile is the bound, in seconds, within which so many of a hundred values are.
func (h histogram) percentile(percent float64) float64 {
	if len(h) == 0 {
		return 0
	}
	wanted := h.count() * percent / 100
	for _, b := range h {
		if b.count >= wanted {
			return b.bound
		}
	}
	return h[len(h)-1].bound
}

// metrics asks virt-controller.
func (w *world) metrics(b *testing.B) metrics {
	b.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it is this machine's own process
		DisableKeepAlives: true,
	}}
	response, err := client.Get(w.metricsURL)
	must(b, err)
	defer func() { _ = response.Body.Close() }()
	var found metrics
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, text, _ := cutLast(lines.Text())
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			continue
		}
		switch {
		case name == "go_memstats_heap_alloc_bytes":
			found.heap = value
		case strings.HasPrefix(name, "rest_client_requests_total{") && !strings.Contains(name, `method="GET"`):
			found.writes += value
		case strings.HasPrefix(name, "workqueue_queue_duration_seconds_sum{") && strings.Contains(name, queue):
			found.waited += value
		case strings.HasPrefix(name, "workqueue_queue_duration_seconds_bucket{") && strings.Contains(name, queue):
			bound, err := strconv.ParseFloat(label(name, "le"), 64)
			must(b, err)
			found.waits = found.waits.with(bound, value)
		}
	}
	must(b, lines.Err())
	if found.heap == 0 || len(found.waits) == 0 {
		b.Fatal(fmt.Errorf("%s answers %s without the heap or the queue of machines", w.metricsURL, response.Status))
	}
	slices.SortFunc(found.waits, func(one, other bucket) int { return cmp.Compare(one.bound, other.bound) })
	return found
}

func cutLast(line string) (name, value string, found bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return line, "", false
	}
	return line[:i], line[i+1:], true
}

// label returns the value of a label of a series.
func label(series, name string) string {
	_, after, _ := strings.Cut(series, name+`="`)
	value, _, _ := strings.Cut(after, `"`)
	return value
}
