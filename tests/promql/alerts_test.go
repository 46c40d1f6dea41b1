package promql

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// span is how long a cluster is watched, a minute between two looks. An alert that waits longer is looked at as if it waited so long.
const span = 40 * time.Minute

// scene is a cluster in which alerts fire.
type scene struct {
	// Without are metrics of the healthy cluster that are not told here, With are series more, or others of what is told.
	Without, With []string
	// Fires are the alerts.
	Fires []string
}

// cluster evaluates rules over recorded series.
type cluster struct {
	t       *testing.T
	engine  *promql.Engine
	storage recorded
}

// newCluster is one in which the series were recorded.
func newCluster(t *testing.T, series ...string) cluster {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: 100 * time.Second, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		Parser:                   parser.NewParser(parser.Options{}),
	})
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return cluster{t: t, engine: engine, storage: record(t, series...)}
}

// seriesOf is the name and labels of a series as a file has it: what comes before its values.
func seriesOf(line string) string {
	at := strings.LastIndex(line, "} ")
	if at < 0 {
		name, _, _ := strings.Cut(line, " ")
		return name
	}
	return line[:at+1]
}

func nameOf(line string) string {
	return strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' })[0]
}

// stage makes the healthy cluster a scene.
func stage(healthy []string, s scene) []string {
	changed := map[string]bool{}
	for _, line := range s.With {
		changed[seriesOf(line)] = true
	}
	kept := slices.DeleteFunc(slices.Clone(healthy), func(line string) bool {
		return slices.Contains(s.Without, nameOf(line)) || changed[seriesOf(line)]
	})
	return append(kept, s.With...)
}

// ask evaluates an expression at a time.
func (c cluster) ask(expr string, at time.Time) promql.Vector {
	c.t.Helper()
	query, err := c.engine.NewInstantQuery(c.t.Context(), c.storage, nil, expr, at)
	if err != nil {
		c.t.Fatalf("%s: %v", expr, err)
	}
	defer query.Close()
	vector, err := query.Exec(c.t.Context()).Vector()
	if err != nil {
		c.t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(vector)
}

// record evaluates a recording rule and keeps its values.
func (c cluster) record(one rule, at time.Time) int {
	c.t.Helper()
	vector := c.ask(one.Expr, at)
	for _, sample := range vector {
		c.storage.add(labels.NewBuilder(sample.Metric).Set(model.MetricNameLabel, one.Record).Labels(), at, sample.F)
	}
	return len(vector)
}

// watch plays series for the span, and returns the alerts that fire at its end, and what was recorded.
func watch(t *testing.T, series []string) (fires, recorded []string) {
	t.Helper()
	c := newCluster(t, series...)
	since := map[string]time.Time{} // of alerts that are pending, by what they are about
	end := time.Unix(0, 0).Add(span)
	for now := time.Unix(0, 0); !now.After(end); now = now.Add(time.Minute) {
		pending := map[string]time.Time{}
		for _, one := range shipped(t) {
			if one.Record != "" {
				if c.record(one, now) > 0 && !slices.Contains(recorded, one.Record) {
					recorded = append(recorded, one.Record)
				}
				continue
			}
			for _, sample := range c.ask(one.Expr, now) {
				about := one.Alert + one.Labels["severity"] + sample.Metric.String()
				pending[about] = now
				if before, ok := since[about]; ok {
					pending[about] = before
				}
				if now.Equal(end) && now.Sub(pending[about]) >= patience(t, one) && !slices.Contains(fires, one.Alert) {
					fires = append(fires, one.Alert)
				}
			}
		}
		since = pending
	}
	slices.Sort(fires)
	return fires, recorded
}

// patience is how long an alert waits, as far as the span shows.
func patience(t *testing.T, one rule) time.Duration {
	t.Helper()
	if one.For == "" {
		return 0
	}
	waits, err := model.ParseDuration(one.For)
	if err != nil {
		t.Fatalf("alert %s: %v", one.Alert, err)
	}
	return min(time.Duration(waits), span-5*time.Minute)
}

func TestEachAlertFiresWhenItShouldAndOnlyThen(t *testing.T) {
	var file struct {
		Healthy []string
		Scenes  map[string]scene
	}
	if err := yaml.UnmarshalStrict(readFile(t, "testdata/scenes.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	fires, recorded := watch(t, file.Healthy)
	if len(fires) > 0 {
		t.Errorf("in a healthy cluster %v fire", fires)
	}
	for _, one := range shipped(t) {
		if one.Record != "" && !slices.Contains(recorded, one.Record) {
			t.Errorf("%s is never recorded", one.Record)
		}
	}
	tried := map[string]bool{}
	for sentence, s := range file.Scenes {
		t.Run(sentence, func(t *testing.T) {
			got, _ := watch(t, stage(file.Healthy, s))
			slices.Sort(s.Fires)
			if !slices.Equal(got, s.Fires) {
				t.Errorf("%v fire, want %v", got, s.Fires)
			}
		})
		for _, one := range s.Fires {
			tried[one] = true
		}
	}
	for _, one := range shipped(t) {
		if one.Alert != "" && !tried[one.Alert] {
			t.Errorf("no scene has %s fire", one.Alert)
		}
	}
}

func TestWithoutKubeStateMetricsNothingIsMadeUp(t *testing.T) {
	for _, one := range shipped(t) {
		parsed, err := parser.NewParser(parser.Options{}).ParseExpr(one.Expr)
		if err != nil {
			t.Fatal(err)
		}
		if one.Record == "" || !strings.Contains(parsed.String(), "kube_") {
			continue
		}
		c := newCluster(t, `up{pod="virt-api-1"} 1x5`)
		if got := c.ask(one.Expr, time.Unix(60, 0)); len(got) > 0 {
			t.Errorf("%s is %v where nobody tells of pods", one.Record, fmt.Sprint(got))
		}
	}
}
