package metric

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// Component tells how one of Slipway's programs is. What it does not know is left empty, and not told.
type Component struct {
	// Name is the program's, such as "virt_api".
	Name string
	// Ready is what /readyz answers by.
	Ready healthz.Checker
	// Elected is closed when the program leads.
	Elected <-chan struct{}
	// Version is the program's version.
	Version string
}

var info = Metric{
	Name: "kubevirt_info", Kind: Gauge, Labels: []string{"goversion", "kubeversion"},
	Help: "Which version of Slipway a virt-handler is, and by which Go it was made; always 1.",
}

func (c Component) ready() Metric {
	return Metric{Name: "kubevirt_" + c.Name + "_ready_status", Kind: Gauge, Help: "1 when the program is ready, as its `/readyz` says; otherwise 0."}
}

func (c Component) leading() Metric {
	return Metric{Name: "kubevirt_" + c.Name + "_leading_status", Kind: Gauge, Help: "1 for the program that does the work, 0 for one that waits to."}
}

// All lists what the component tells.
func (c Component) All() []Metric {
	all := []Metric{c.ready()}
	if c.Elected != nil {
		all = append(all, c.leading())
	}
	if c.Version != "" {
		all = append(all, info)
	}
	return all
}

// Describe implements prometheus.Collector.
func (c Component) Describe(out chan<- *prometheus.Desc) { describe(c.All(), out) }

// Collect implements prometheus.Collector.
func (c Component) Collect(out chan<- prometheus.Metric) {
	out <- c.ready().Value(truth(c.Ready(nil) == nil), nil, nil)
	if c.Elected != nil {
		leads := false
		select {
		case <-c.Elected:
			leads = true
		default:
		}
		out <- c.leading().Value(truth(leads), nil, nil)
	}
	if c.Version != "" {
		out <- info.Value(1, []string{runtime.Version(), c.Version}, nil)
	}
}

// Components lists what the programs tell of themselves.
func Components() []Metric {
	led := make(chan struct{})
	var all []Metric
	for _, one := range []Component{{Name: "virt_api"}, {Name: "virt_controller"}, {Name: "virt_handler", Version: "v"}, {Name: "virt_operator", Elected: led}} {
		all = append(all, one.All()...)
	}
	return all
}

func describe(all []Metric, out chan<- *prometheus.Desc) {
	for _, m := range all {
		out <- prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
