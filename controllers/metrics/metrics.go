// Package metrics tells Prometheus of the cluster's virtual machines: which there are, how they
// are, what they ask for and how long they take. Only the virt-controller that leads tells.
package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/names"
)

// listPatience bounds the look into the cache, which waits for nothing once it is filled.
const listPatience = 5 * time.Second

var leading = metric.Metric{
	Name: "kubevirt_virt_controller_leading_status", Kind: metric.Gauge,
	Help: "1 for the virt-controller that does the work, 0 for one that waits to.",
}

// SetupWithManager makes mgr's metrics tell of virtual machines until ctx is done.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	c := &collector{
		transitions: newTransitions(), elected: mgr.Elected(),
		list: func() (*world, error) {
			ctx, cancel := context.WithTimeout(ctx, listPatience)
			defer cancel()
			return listWorld(ctx, mgr.GetClient())
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

// world is what there is at one moment. Its objects are the cache's own: they are only read.
type world struct {
	vms    []virtv1.VirtualMachine
	vmis   []virtv1.VirtualMachineInstance
	named  map[client.ObjectKey]*virtv1.VirtualMachineInstance // vmis by name
	pods   map[string]*corev1.Pod                              // running launcher pods by their VMI's uid
	claims map[client.ObjectKey]*corev1.PersistentVolumeClaim  // by name
}

func (w *world) nameInstances() {
	w.named = make(map[client.ObjectKey]*virtv1.VirtualMachineInstance, len(w.vmis))
	for i := range w.vmis {
		w.named[client.ObjectKeyFromObject(&w.vmis[i])] = &w.vmis[i]
	}
}

func listWorld(ctx context.Context, reader client.Reader) (*world, error) {
	vms, vmis, pods, claims := &virtv1.VirtualMachineList{}, &virtv1.VirtualMachineInstanceList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}
	for _, list := range []client.ObjectList{vms, vmis, pods, claims} {
		if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %T for metrics: %w", list, err)
		}
	}
	w := &world{vms: vms.Items, vmis: vmis.Items, pods: map[string]*corev1.Pod{}, claims: map[client.ObjectKey]*corev1.PersistentVolumeClaim{}}
	w.nameInstances()
	for i := range pods.Items {
		one := &pods.Items[i]
		if one.Labels[names.LabelPod] == pod.KindLauncher && one.Status.Phase == corev1.PodRunning {
			w.pods[one.Labels[virtv1.CreatedByLabel]] = one
		}
	}
	for i := range claims.Items {
		w.claims[client.ObjectKeyFromObject(&claims.Items[i])] = &claims.Items[i]
	}
	return w, nil
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

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range All() {
		out <- prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
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
}

// teller passes a value on; labels are in the order of the metric's.
type teller func(m metric.Metric, value float64, labels ...string)

// All lists what virt-controller exports of virtual machines.
func All() []metric.Metric {
	all := []metric.Metric{leading}
	for _, group := range [][]metric.Metric{vmMetrics, lastTransitions(), vmiMetrics, countMetrics, transitionMetrics} {
		all = append(all, group...)
	}
	return all
}
