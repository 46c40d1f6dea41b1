package promql

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// recorded are series in memory, by their labels. Prometheus's own storage would bring the clients of every cloud along.
type recorded map[string]*promql.Series

// record reads series in the notation of Prometheus's tests, NAME{LABELS} VALUES, with a value each minute from the epoch on.
func record(t *testing.T, lines ...string) recorded {
	t.Helper()
	r := recorded{}
	for _, line := range lines {
		metric, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for n, value := range values {
			if value.Histogram != nil {
				t.Fatalf("%s: histograms are not read here; write numbers", line)
			}
			if !value.Omitted {
				r.add(metric, time.Unix(0, 0).Add(time.Duration(n)*time.Minute), value.Value)
			}
		}
	}
	return r
}

// add gives the series of metric a value, later than those that it has.
func (r recorded) add(metric labels.Labels, at time.Time, value float64) {
	series := r[metric.String()]
	if series == nil {
		series = &promql.Series{Metric: metric}
		r[metric.String()] = series
	}
	series.Floats = append(series.Floats, promql.FPoint{T: at.UnixMilli(), F: value})
}

// Querier is storage.Queryable's.
func (r recorded) Querier(from, to int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &found{at: -1}
		for _, series := range r {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(series.Metric.Get(m.Name)) }) {
				found.series = append(found.series, within(series, from, to))
			}
		}
		slices.SortFunc(found.series, func(a, b promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
		return found
	}}, nil
}

// within is series with its values of a time, both ends included.
func within(series *promql.Series, from, to int64) promql.Series {
	later := func(point promql.FPoint, than int64) int { return cmp.Compare(point.T, than) }
	first, _ := slices.BinarySearchFunc(series.Floats, from, later)
	end, _ := slices.BinarySearchFunc(series.Floats, to+1, later)
	return promql.Series{Metric: series.Metric, Floats: series.Floats[first:end]}
}

// found is a storage.SeriesSet.
type found struct {
	series []promql.Series
	at     int
}

// Next goes to the next series, if there is one.
func (f *found) Next() bool {
	f.at++
	return f.at < len(f.series)
}

// At is the series.
func (f *found) At() storage.Series { return promql.NewStorageSeries(f.series[f.at]) }

// Err is nil: nothing fails.
func (*found) Err() error { return nil }

// Warnings are none.
func (*found) Warnings() annotations.Annotations { return nil }
