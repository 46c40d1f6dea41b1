// Package metrics writes the page of the metrics that Slipway exports, from the lists that
// those who export them have.
package metrics

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	controller "github.com/slipway-vm/slipway/controllers/metrics"
	"github.com/slipway-vm/slipway/internal/metric"
	handler "github.com/slipway-vm/slipway/runtime/handler/metrics"
	storage "github.com/slipway-vm/slipway/runtime/hostpath/metrics"
)

//go:embed page.md
var page string

// Page is the page in Markdown.
func Page() string {
	return strings.NewReplacer("HANDLER_TABLE\n", table(handler.All()), "STORAGE_TABLE\n", table(storage.All()), "CONTROLLER_TABLE\n", table(controller.All()),
		"PROGRAM_TABLE\n", table(slices.Concat(metric.Components(), metric.Guests(), metric.AllConnections(), metric.Queues(), metric.Requests())), "MISSING_TABLE\n", missing()).Replace(page)
}

func table(all []metric.Metric) string {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b metric.Metric) int { return strings.Compare(a.Name, b.Name) })
	var b strings.Builder
	b.WriteString("| metric | kind | labels | what it tells |\n|---|---|---|---|\n")
	for _, m := range all {
		labels := "none"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "` `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, labels, m.Help)
	}
	return b.String()
}

// missing lists what the field tells and Slipway does not.
func missing() string {
	var b strings.Builder
	b.WriteString("| metric or rule of KubeVirt or CDI | why Slipway does not tell it |\n|---|---|\n")
	for _, one := range metric.Missing {
		fmt.Fprintf(&b, "| `%s` | %s |\n", one.Name, one.Why)
	}
	return b.String()
}
