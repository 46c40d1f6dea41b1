// Package metric describes measurements once, for who exports them, for the page that lists
// them, and for the tests that hold alerts and dashboards to them.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Kind is how a measurement moves.
type Kind string

// Kinds of measurements.
const (
	Gauge     Kind = "gauge"     // up and down
	Counter   Kind = "counter"   // only up, until what is counted begins anew
	Histogram Kind = "histogram" // how often a value fell into each of some ranges
)

// Metric is one measurement.
type Metric struct {
	Name string
	Kind Kind
	// Help is a sentence for people.
	Help string
	// Labels tell the series apart, in the order in which Value takes them.
	Labels []string

	further prometheus.Labels // by With
}

// Value is one value, with labels in the order of the metric's own and further ones. What does
// not fit becomes an error of the scrape.
func (m Metric) Value(value float64, labels []string, further prometheus.Labels) prometheus.Metric {
	if further == nil {
		further = m.further
	}
	description := prometheus.NewDesc(m.Name, m.Help, m.Labels, further)
	kind := prometheus.GaugeValue
	if m.Kind == Counter {
		kind = prometheus.CounterValue
	}
	out, err := prometheus.NewConstMetric(description, kind, value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(description, err)
	}
	return out
}

// HistogramVec makes the histogram with the upper bounds of its ranges.
func (m Metric) HistogramVec(bounds []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: bounds}, m.Labels)
}

// CounterVec makes the counter.
func (m Metric) CounterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// With is the metric with labels more, of which each value has its own.
func (m Metric) With(labels map[string]string) Metric {
	m.further = labels
	return m
}
