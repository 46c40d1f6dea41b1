package metric

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// queuePrefix begins the names of the metrics of work queues; the field's begin with fieldPrefix before that.
const (
	queuePrefix = "workqueue_"
	fieldPrefix = "kubevirt_"
)

// Queues lists what is told of work queues.
func Queues() []Metric {
	queue := func(name string, kind Kind, help string) Metric {
		return Metric{Name: fieldPrefix + queuePrefix + name, Kind: kind, Help: help, Labels: []string{"name"}}
	}
	return []Metric{
		queue("adds_total", Counter, "Objects that came into a controller's work queue."),
		queue("depth", Gauge, "Objects that wait in a controller's work queue."),
		queue("longest_running_processor_seconds", Gauge, "How long the pass has run that a controller began first of those it is at."),
		queue("queue_duration_seconds", Histogram, "How long objects waited in a controller's work queue."),
		queue("retries_total", Counter, "Passes that were put off, most of them because they failed."),
		queue("unfinished_work_seconds", Gauge, "How long the passes have run that a controller is at, added up."),
		queue("work_duration_seconds", Histogram, "How long a controller's passes took."),
	}
}

// withFieldNames tells what a registry tells, and of work queues also by the field's names.
type withFieldNames struct{ metrics.RegistererGatherer }

// nameQueues has this process tell of work queues by the field's names, too.
func nameQueues() {
	if _, done := metrics.Registry.(withFieldNames); !done {
		metrics.Registry = withFieldNames{metrics.Registry}
	}
}

// Gather implements prometheus.Gatherer.
func (w withFieldNames) Gather() ([]*dto.MetricFamily, error) {
	families, err := w.RegistererGatherer.Gather()
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), queuePrefix) {
			families = append(families, fieldFamily(family))
		}
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	if err != nil {
		return families, fmt.Errorf("collecting metrics: %w", err)
	}
	return families, nil
}

// fieldFamily is family by its name in the field, whose only label is that of the queue: what is
// told of a queue by priority is added up.
func fieldFamily(family *dto.MetricFamily) *dto.MetricFamily {
	out := &dto.MetricFamily{Name: new(fieldPrefix + family.GetName()), Help: family.Help, Type: family.Type, Unit: family.Unit}
	at := map[string]*dto.Metric{}
	for _, one := range family.Metric {
		name := ""
		for _, label := range one.Label {
			if label.GetName() == "name" {
				name = label.GetValue()
			}
		}
		sum := at[name]
		switch {
		case sum == nil:
			sum = proto.Clone(one).(*dto.Metric) //nolint:errcheck,forcetypeassert // a clone is of the same type
			sum.Label = []*dto.LabelPair{{Name: new("name"), Value: new(name)}}
			at[name] = sum
			out.Metric = append(out.Metric, sum)
		case sum.Gauge != nil:
			sum.Gauge.Value = new(sum.Gauge.GetValue() + one.GetGauge().GetValue())
		case sum.Counter != nil:
			sum.Counter.Value = new(sum.Counter.GetValue() + one.GetCounter().GetValue())
		}
	}
	return out
}

var _ prometheus.Gatherer = withFieldNames{}
