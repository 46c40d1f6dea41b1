package virtualmachineinstance

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// replaceUnfit deletes a launcher pod that no node took and that would be built another
// way now, because KVM has come or emulation was allowed since, or a node with KVM has no /dev/vhost-net.
func (r *Reconciler) replaceUnfit(ctx context.Context, s *scope) (bool, error) {
	current, err := r.readSettings(ctx)
	if err != nil {
		return false, err
	}
	kvm, err := r.useKVM(ctx, current)
	if err != nil {
		return false, err
	}
	vhost, err := r.useVhostNet(ctx, current, s.vmi)
	if err != nil || kvm == wantsKVM(s.pod) && (vhost || !wants(s.pod, names.DeviceVhostNet)) {
		return false, err
	}
	return true, r.deletePod(ctx, s, s.pod, 0)
}

// rejectionPause is how long a rejected pod is left before another is tried: about as
// long as a virt-handler needs to come back.
const rejectionPause = 2 * time.Second

// rejected says whether the kubelet turned pod away before anything ran in it, as it
// does while virt-handler restarts and its devices count as unhealthy.
func rejected(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "UnexpectedAdmissionError" &&
		len(pod.Status.ContainerStatuses) == 0
}

// replaceRejected deletes a rejected pod, so that the next pass makes another.
func (r *Reconciler) replaceRejected(ctx context.Context, s *scope) error {
	if left := rejectionPause - s.now.Sub(s.pod.CreationTimestamp.Time); left > 0 {
		s.requeueAfter(left)
		return steps.ErrDone
	}
	s.enter(virtv1.Scheduling)
	s.setCondition(conditionSynchronized, corev1.ConditionFalse, s.pod.Status.Reason, s.pod.Status.Message)
	if err := r.deletePod(ctx, s, s.pod, 0); err != nil {
		return err
	}
	return steps.ErrDone
}
