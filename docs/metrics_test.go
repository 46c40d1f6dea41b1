package docs_test

import (
	"os"
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

// everything is what all programs export.
func everything() []metric.Metric {
	return slices.Concat(handler.All(), storage.All(), controller.All(), metric.Components(), metric.Guests(), metric.AllConnections(), metric.Queues(), metric.Requests())
}

// recorded are the names that rules record.
func recorded(t *testing.T) map[string]bool {
	t.Helper()
	var rules struct {
		Spec struct {
			Groups []struct{ Rules []struct{ Record string } }
		}
	}
	if err := yaml.Unmarshal(monitoring.Rules, &rules); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			names[rule.Record] = true
		}
	}
	return names
}

func TestWhatTheFieldTellsIsToldOrItIsSaidWhyNot(t *testing.T) {
	list, err := os.ReadFile("testdata/field-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	told := recorded(t)
	for _, m := range everything() {
		told[m.Name] = true
	}
	missing := map[string]bool{}
	for _, one := range metric.Missing {
		if told[one.Name] {
			t.Errorf("%s is told, and said to be missing", one.Name)
		}
		missing[one.Name] = true
	}
	var field []string
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			field = append(field, line)
		}
	}
	if len(field) < 150 {
		t.Fatalf("the field's list has only %d names", len(field))
	}
	for _, name := range field {
		if !told[name] && !missing[name] {
			t.Errorf("%s is neither told nor said to be missing", name)
		}
		delete(missing, name)
	}
	for name := range missing {
		t.Errorf("%s is said to be missing, and the field does not tell it", name)
	}
}

func TestMetricsAreNamedWell(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range everything() {
		if seen[m.Name] {
			t.Errorf("%s is listed twice", m.Name)
		}
		seen[m.Name] = true
		if !regexp.MustCompile(`^(kubevirt|slipway)_[a-z0-9_]+$`).MatchString(m.Name) || !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: %s", m.Name, m.Help)
		}
	}
}
