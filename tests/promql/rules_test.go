package promql

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const (
	rulesFile     = "../../catalog/monitoring/rules.yaml"
	dashboardFile = "../../catalog/monitoring/dashboard.json"
	metricsPage   = "../../docs/metrics.md"
	runbooksPage  = "../../docs/runbooks.md"
)

// rule is one of the PrometheusRule.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func (r rule) name() string { return r.Record + r.Alert }

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// shipped are all rules, in their order.
func shipped(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		APIVersion, Kind string
		Metadata         map[string]any
		Spec             struct {
			Groups []struct {
				Name  string
				Rules []rule
			}
		}
	}
	if err := yaml.UnmarshalStrict(readFile(t, rulesFile), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Spec.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// known are the labels of what somebody tells of, by the names of series.
type known map[string][]string

// others are who tell beside Slipway: Prometheus itself, and of pods kube-state-metrics and the kubelet.
var others = known{
	"up":                                                         {"pod"},
	"kube_pod_status_phase":                                      {"namespace", "pod", "phase"},
	"kube_node_status_allocatable":                               {"node", "resource"},
	"kube_deployment_spec_replicas":                              {"namespace", "deployment"},
	"kube_daemonset_status_number_ready":                         {"namespace", "daemonset"},
	"kube_daemonset_status_desired_number_scheduled":             {"namespace", "daemonset"},
	"kube_pod_container_resource_requests":                       {"namespace", "pod", "container", "resource"},
	"kube_persistentvolumeclaim_labels":                          {"namespace", "persistentvolumeclaim", "label_restore_kubevirt_io_source_vm_name", "label_restore_kubevirt_io_source_vm_namespace"},
	"kube_persistentvolumeclaim_resource_requests_storage_bytes": {"namespace", "persistentvolumeclaim"},
	"container_memory_rss":                                       {"namespace", "pod", "container"},
	"container_memory_working_set_bytes":                         {"namespace", "pod", "container"},
}

// row is a metric in the page of metrics.
var (
	row    = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (gauge|counter|histogram) \\| ([^|]*) \\|")
	quoted = regexp.MustCompile("`([^`]+)`")
)

// exported is what the page of metrics lists, which is made from what programs export, with what Prometheus adds.
func exported(t *testing.T) known {
	t.Helper()
	all := known{}
	for _, m := range row.FindAllStringSubmatch(string(readFile(t, metricsPage)), -1) {
		names := []string{"pod", "namespace"}
		for _, label := range quoted.FindAllStringSubmatch(m[3], -1) {
			names = append(names, label[1])
		}
		series := []string{m[1]}
		if m[2] == "histogram" {
			series, names = []string{m[1] + "_bucket", m[1] + "_sum", m[1] + "_count"}, append(names, "le")
		}
		for _, one := range series {
			all[one] = names
		}
	}
	if len(all) < 80 {
		t.Fatalf("%s lists only %d series", metricsPage, len(all))
	}
	return all
}

// check holds an expression to what is known; what rules record may have any labels.
func check(t *testing.T, where, expr string, told known, recorded []string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, expr)
		return
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok || slices.Contains(recorded, selector.Name) {
			return nil
		}
		has, ok := told[selector.Name]
		if !ok {
			t.Errorf("%s asks for %s, which nobody exports or records", where, selector.Name)
			return nil
		}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != model.MetricNameLabel && !slices.Contains(has, matcher.Name) {
				t.Errorf("%s: %s has no label %s", where, selector.Name, matcher.Name)
			}
		}
		return nil
	})
}

func TestRulesAndPanelsAskForWhatIsExported(t *testing.T) {
	told := exported(t)
	maps.Copy(told, others)
	var recorded []string
	for _, one := range shipped(t) { // in the order of the file: what is recorded further down is of the last time
		check(t, one.name(), one.Expr, told, recorded)
		if one.Record != "" {
			recorded = append(recorded, one.Record)
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(readFile(t, dashboardFile), &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$__interval", "1m")
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			check(t, "panel "+panel.Title, variables.Replace(target.Expr), told, recorded)
		}
	}
}

func TestAlertsSayWhatIsWrongAndWhatToDo(t *testing.T) {
	runbooks := string(readFile(t, runbooksPage))
	for _, one := range shipped(t) {
		if one.Alert == "" {
			continue
		}
		for _, what := range []string{"summary", "description", "runbook_url"} {
			if one.Annotations[what] == "" {
				t.Errorf("alert %s has no %s", one.Alert, what)
			}
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, one.Labels["severity"]) || one.Labels["operator_health_impact"] == "" {
			t.Errorf("alert %s has labels %v", one.Alert, one.Labels)
		}
		if !strings.Contains(runbooks, "\n## "+one.Alert+"\n") {
			t.Errorf("%s has no section %s", runbooksPage, one.Alert)
		}
		if !strings.HasSuffix(one.Annotations["runbook_url"], "docs/runbooks.md#"+strings.ToLower(one.Alert)) {
			t.Errorf("alert %s names the runbook %s", one.Alert, one.Annotations["runbook_url"])
		}
	}
}
