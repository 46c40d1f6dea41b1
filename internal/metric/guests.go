package metric

import "github.com/prometheus/client_golang/prometheus"

var (
	syncsTotal = Metric{
		Name: "kubevirt_vmi_sync_total", Kind: Counter, Labels: []string{"namespace", "name"},
		Help: "Passes over a VMI of virt-controller, and of the virt-handler of its node.",
	}
	panicsTotal = Metric{
		Name: "kubevirt_vmi_guest_os_panic_total", Kind: Counter, Labels: []string{"namespace", "name", "type", "bugcheck_code"},
		Help: "Panics of a guest's kernel since its virt-handler was started. `type` and `bugcheck_code` are `unknown`: libvirt does not tell them.",
	}

	syncs  = syncsTotal.CounterVec()
	panics = panicsTotal.CounterVec()
)

const unknown = "unknown"

// Synced counts a pass over a VMI.
func Synced(namespace, name string) { syncs.WithLabelValues(namespace, name).Inc() }

// ForgetSyncs forgets the passes over a VMI that is gone.
func ForgetSyncs(namespace, name string) { syncs.DeleteLabelValues(namespace, name) }

// Panicked counts a panic of a guest's kernel. It is remembered when the VMI is gone: its VM may make it anew, to panic again.
func Panicked(namespace, name string) {
	panics.WithLabelValues(namespace, name, unknown, unknown).Inc()
}

// Syncs tells of the passes.
func Syncs() prometheus.Collector { return syncs }

// Panics tells of the panics.
func Panics() prometheus.Collector { return panics }

// Guests lists what is counted by VMI.
func Guests() []Metric { return []Metric{syncsTotal, panicsTotal} }
