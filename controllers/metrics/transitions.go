package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/metric"
)

var (
	vmsCreated = metric.Metric{
		Name: "kubevirt_vm_created_total", Kind: metric.Counter, Labels: []string{"namespace"},
		Help: "VMs that were created since this virt-controller began to lead.",
	}
	betweenPhases = metric.Metric{
		Name: "kubevirt_vmi_phase_transition_time_seconds", Kind: metric.Histogram, Labels: []string{"phase", "last_phase"},
		Help: "How long VMIs were in `last_phase` before they came to `phase`.",
	}
	fromCreation = metric.Metric{
		Name: "kubevirt_vmi_phase_transition_time_from_creation_seconds", Kind: metric.Histogram, Labels: []string{"phase"},
		Help: "How long it took VMIs from their creation to a phase.",
	}
	fromDeletion = metric.Metric{
		Name: "kubevirt_vmi_phase_transition_time_from_deletion_seconds", Kind: metric.Histogram, Labels: []string{"phase"},
		Help: "How long it took VMIs that were deleted to come to their last phase.",
	}
	transitionMetrics = []metric.Metric{vmsCreated, betweenPhases, fromCreation, fromDeletion}
)

// bounds of the histograms in seconds, which are the field's.
var bounds = []float64{0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600}

// transitions are counted as they happen.
type transitions struct {
	created                         *prometheus.CounterVec
	between, creation, deletionTime *prometheus.HistogramVec
}

func newTransitions() *transitions {
	return &transitions{
		created: vmsCreated.CounterVec(), between: betweenPhases.HistogramVec(bounds),
		creation: fromCreation.HistogramVec(bounds), deletionTime: fromDeletion.HistogramVec(bounds),
	}
}

func (t *transitions) collect(out chan<- prometheus.Metric) {
	for _, one := range []prometheus.Collector{t.created, t.between, t.creation, t.deletionTime} {
		one.Collect(out)
	}
}

// countCreated counts VMs that come while this process leads.
func (c *collector) countCreated() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{AddFunc: func(object any, old bool) {
		if vm, ok := object.(*virtv1.VirtualMachine); ok && !old && c.leads() {
			c.created.WithLabelValues(vm.Namespace).Inc()
		}
	}}
}

// timeTransitions observes how long VMIs take from phase to phase.
func (c *collector) timeTransitions() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		old, okOld := before.(*virtv1.VirtualMachineInstance)
		vmi, okNew := after.(*virtv1.VirtualMachineInstance)
		if okOld && okNew && c.leads() {
			c.observe(old, vmi)
		}
	}}
}

// observe takes the times of the VMI's own status, which has them by the second.
func (t *transitions) observe(old, vmi *virtv1.VirtualMachineInstance) {
	phase := vmi.Status.Phase
	entered, known := enteredAt(vmi, phase)
	if old.Status.Phase == phase || !known {
		return
	}
	t.creation.WithLabelValues(string(phase)).Observe(secondsFrom(vmi.CreationTimestamp.Time, entered))
	since, known := enteredAt(vmi, old.Status.Phase)
	if old.Status.Phase == virtv1.VmPhaseUnset {
		since, known = vmi.CreationTimestamp.Time, true
	}
	if known {
		t.between.WithLabelValues(string(phase), string(old.Status.Phase)).Observe(secondsFrom(since, entered))
	}
	if vmi.DeletionTimestamp != nil && vmi.IsFinal() {
		t.deletionTime.WithLabelValues(string(phase)).Observe(secondsFrom(askedToGo(vmi), entered))
	}
}

// askedToGo is when a VMI was deleted: its timestamp is when its grace period is over.
func askedToGo(vmi *virtv1.VirtualMachineInstance) time.Time {
	asked := vmi.DeletionTimestamp.Time
	if grace := vmi.DeletionGracePeriodSeconds; grace != nil {
		asked = asked.Add(-time.Duration(*grace) * time.Second)
	}
	return asked
}

func enteredAt(vmi *virtv1.VirtualMachineInstance, phase virtv1.VirtualMachineInstancePhase) (time.Time, bool) {
	for _, transition := range vmi.Status.PhaseTransitionTimestamps {
		if transition.Phase == phase {
			return transition.PhaseTransitionTimestamp.Time, true
		}
	}
	return time.Time{}, false
}

// secondsFrom is never negative: two clocks wrote the times.
func secondsFrom(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }
