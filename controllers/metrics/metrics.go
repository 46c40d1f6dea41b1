// Package metrics tells Prometheus of the cluster's virtual machines: which there are, how they
// are, what they ask for and how long they take, and of the data that they are made from. Only the virt-controller that leads tells.
package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/slipway-vm/slipway/internal/metric"
)

// listPatience bounds the look into the cache, which waits for nothing once it is filled.
const listPatience = 5 * time.Second

var leading = metric.Metric{
	Name: "kubevirt_virt_controller_leading_status", Kind: metric.Gauge,
	Help: "1 for the virt-controller that does the work, 0 for one that waits to.",
}

// SetupWithManager makes mgr's metrics tell of virtual machines and their data until ctx is done. The ConfigMap that says which labels
// are told is in namespace.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, namespace string) error {
	c := &collector{
		transitions: newTransitions(), elected: mgr.Elected(),
		list: func() (*world, error) {
			ctx, cancel := context.WithTimeout(ctx, listPatience)
			defer cancel()
			return listWorld(ctx, mgr.GetClient(), mgr.GetAPIReader(), namespace)
		},
		failed: func(err error) { log.FromContext(ctx).Error(err, "Collecting metrics failed") },
	}
	for object, handler := range map[client.Object]cache.ResourceEventHandler{
		&virtv1.VirtualMachine{}: c.countCreated(), &virtv1.VirtualMachineInstance{}: c.timeTransitions(),
	} {
		informer, err := mgr.GetCache().GetInformer(ctx, object)
		if err != nil {
			return fmt.Errorf("watching %T for metrics: %w", object, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching %T for metrics: %w", object, err)
		}
	}
	for _, list := range (&lists{}).all() {
		if _, err := mgr.GetCache().GetInformer(ctx, elementOf(list)); err != nil {
			return fmt.Errorf("watching %T for metrics: %w", list, err)
		}
	}
	if err := ctrlmetrics.Registry.Register(c); err != nil {
		return fmt.Errorf("registering the metrics of virtual machines: %w", err)
	}
	context.AfterFunc(ctx, func() { ctrlmetrics.Registry.Unregister(c) })
	return nil
}

// collector reads the caches of the controllers at every scrape.
type collector struct {
	*transitions
	elected <-chan struct{}
	list    func() (*world, error)
	failed  func(error)
}

// leads says whether this process does the controllers' work. Before that the caches may not be filled.
func (c *collector) leads() bool {
	select {
	case <-c.elected:
		return true
	default:
		return false
	}
}

// Describe implements prometheus.Collector. It is silent of the labels of VMs, which are known when they are told.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range All() {
		if m.Name != vmLabels.Name {
			out <- prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
		}
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	if !c.leads() {
		out <- leading.Value(0, nil, nil)
		return
	}
	out <- leading.Value(1, nil, nil)
	c.collect(out)
	w, err := c.list()
	if err != nil {
		c.failed(err)
		return
	}
	tell := func(m metric.Metric, value float64, labels ...string) { out <- m.Value(value, labels, nil) }
	counts := newCounts()
	for i := range w.vms {
		counts.addVM(&w.vms[i])
		w.tellVM(tell, &w.vms[i])
	}
	for i := range w.vmis {
		counts.addVMI(&w.vmis[i])
		w.tellVMI(tell, &w.vmis[i])
	}
	counts.tell(tell)
	w.tellSettings(tell)
	w.tellSnapshots(tell)
	w.tellData(tell)
}

// teller passes a value on; labels are in the order of the metric's.
type teller func(m metric.Metric, value float64, labels ...string)

// All lists what virt-controller exports of virtual machines.
func All() []metric.Metric {
	all := []metric.Metric{leading}
	for _, group := range [][]metric.Metric{vmMetrics, lastTransitions(), vmiMetrics, countMetrics, transitionMetrics, otherMetrics, dataMetrics} {
		all = append(all, group...)
	}
	return all
}
