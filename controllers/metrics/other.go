package metrics

import (
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/metric"
)

var (
	emulation = metric.Metric{
		Name: "kubevirt_configuration_emulation_enabled", Kind: metric.Gauge,
		Help: "1 when VMs run without KVM where a node has none, as the KubeVirt object's `developerConfiguration.useEmulation` says.",
	}
	outdatedCount = metric.Metric{
		Name: "kubevirt_vmi_number_of_outdated", Kind: metric.Gauge,
		Help: "VMIs whose launcher is of an earlier version of Slipway; they are of this one when they are restarted.",
	}
	snapshotTaken = metric.Metric{
		Name: "kubevirt_vmsnapshot_succeeded_timestamp_seconds", Kind: metric.Gauge, Labels: []string{"name", "snapshot_name", "namespace"},
		Help: "When a snapshot of the VM `name` was taken; there is none of one that failed.",
	}
	otherMetrics = []metric.Metric{emulation, outdatedCount, snapshotTaken}
)

// tellSettings tells of the installation.
func (w *world) tellSettings(tell teller) {
	if len(w.kubevirts) > 0 {
		dev := w.kubevirts[0].Spec.Configuration.DeveloperConfiguration
		tell(emulation, number(dev != nil && dev.UseEmulation))
	}
	outdated := 0
	for i := range w.vmis {
		if _, is := w.vmis[i].Labels[virtv1.OutdatedLauncherImageLabel]; is && !w.vmis[i].IsFinal() {
			outdated++
		}
	}
	tell(outdatedCount, float64(outdated))
}

// tellSnapshots tells of those that succeeded.
func (w *world) tellSnapshots(tell teller) {
	for i := range w.snapshots {
		one := &w.snapshots[i]
		if one.Status != nil && one.Status.Phase == snapshotv1.Succeeded && one.Status.CreationTime != nil {
			tell(snapshotTaken, float64(one.Status.CreationTime.Unix()), one.Spec.Source.Name, one.Name, one.Namespace)
		}
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
