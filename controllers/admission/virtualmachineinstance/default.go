package virtualmachineinstance

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
)

// Default completes a new VMI: its spec, by what the cluster says, the finalizer by which virt-controller ends
// it in order, and the phase that it begins in. The VMI has no status subresource, so
// what a client sends as status would count; it is replaced.
func Default(vmi *virtv1.VirtualMachineInstance, cluster defaults.Cluster, now time.Time) {
	defaults.Set(vmi, cluster)
	if !controllerutil.ContainsFinalizer(vmi, virtv1.DeprecatedVirtualMachineInstanceFinalizer) {
		controllerutil.AddFinalizer(vmi, virtv1.VirtualMachineInstanceFinalizer)
	}
	vmi.Status = virtv1.VirtualMachineInstanceStatus{
		// virt-controller knows it before there is a VMI; of a VMI without a VM it means nothing.
		VirtualMachineRevisionName: vmi.Status.VirtualMachineRevisionName,
		Phase:                      virtv1.Pending,
		PhaseTransitionTimestamps: []virtv1.VirtualMachineInstancePhaseTransitionTimestamp{
			{Phase: virtv1.Pending, PhaseTransitionTimestamp: metav1.NewTime(now.Truncate(time.Second))},
		},
	}
}
