package docs_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/catalog/monitoring"
	controller "github.com/slipway-vm/slipway/controllers/metrics"
	"github.com/slipway-vm/slipway/internal/metric"
	handler "github.com/slipway-vm/slipway/runtime/handler/metrics"
	storage "github.com/slipway-vm/slipway/runtime/hostpath/metrics"
)

// expression is a query and where it stands.
type expression struct{ where, query string }

// shipped are the queries of all rules and panels, and the names that rules record.
func shipped(t *testing.T) (all []expression, recorded map[string]bool) {
	t.Helper()
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Record, Alert, Expr string
					Annotations         map[string]string
				}
			}
		}
	}
	if err := yaml.Unmarshal(monitoring.Rules, &rules); err != nil {
		t.Fatal(err)
	}
	recorded = map[string]bool{}
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			all = append(all, expression{rule.Record + rule.Alert, rule.Expr})
			if rule.Record != "" {
				recorded[rule.Record] = true
			} else if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("alert %s does not say what is wrong", rule.Alert)
			}
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	if err := json.Unmarshal(monitoring.Dashboard, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all = append(all, expression{"panel " + panel.Title, target.Expr})
		}
	}
	return all, recorded
}

// foreign are metrics of Prometheus itself.
var foreign = []string{"up"}

var (
	text     = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	matchers = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}`)
	grouping = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	window   = regexp.MustCompile(`\[[^\]]*\]`)
	word     = regexp.MustCompile(`[a-zA-Z_:][\w:]*\s*\(?`)
	label    = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)`)
	suffix   = regexp.MustCompile(`_(bucket|sum|count)$`)
	keywords = []string{"and", "or", "unless", "bool", "offset", "by", "on"}
)

func exported() map[string]metric.Metric {
	all := map[string]metric.Metric{}
	for _, m := range slices.Concat(handler.All(), storage.All(), controller.All()) {
		all[m.Name] = m
	}
	return all
}

// find returns the metric of a series, whose histograms have three of them.
func find(all map[string]metric.Metric, name string) (metric.Metric, bool) {
	if m, ok := all[name]; ok {
		return m, true
	}
	m, ok := all[suffix.ReplaceAllString(name, "")]
	return m, ok && m.Kind == metric.Histogram
}

func TestRulesAndDashboardAskForWhatIsExported(t *testing.T) {
	all, recorded := shipped(t)
	if len(all) < 20 {
		t.Fatalf("there are only %d queries", len(all))
	}
	known := exported()
	for _, one := range all {
		bare := text.ReplaceAllString(one.query, `""`)
		for _, pair := range []string{"()", "{}", "[]"} {
			if strings.Count(bare, pair[:1]) != strings.Count(bare, pair[1:]) {
				t.Errorf("%s: %s do not match in %s", one.where, pair, one.query)
			}
		}
		for _, found := range matchers.FindAllStringSubmatch(bare, -1) {
			m, ok := find(known, found[1])
			for _, name := range label.FindAllStringSubmatch(found[2], -1) {
				if ok && !slices.Contains(m.Labels, name[1]) {
					t.Errorf("%s: %s has no label %s", one.where, found[1], name[1])
				}
			}
		}
		bare = matchers.ReplaceAllString(bare, "$1 ")
		bare = window.ReplaceAllString(grouping.ReplaceAllString(bare, " "), " ")
		for _, name := range word.FindAllString(bare, -1) {
			name = strings.TrimSpace(name)
			_, ok := find(known, name)
			if !ok && !recorded[name] && !strings.HasSuffix(name, "(") && !slices.Contains(keywords, name) && !slices.Contains(foreign, name) {
				t.Errorf("%s asks for %s, which nobody exports or records", one.where, name)
			}
		}
	}
}

func TestMetricsAreNamedWell(t *testing.T) {
	all := slices.Concat(handler.All(), storage.All(), controller.All())
	if len(exported()) != len(all) {
		t.Error("a metric is listed twice")
	}
	for _, m := range all {
		if !regexp.MustCompile(`^(kubevirt|slipway)_[a-z0-9_]+$`).MatchString(m.Name) || !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: %s", m.Name, m.Help)
		}
	}
}
