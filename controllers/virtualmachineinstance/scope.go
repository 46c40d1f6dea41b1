package virtualmachineinstance

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
)

// scope is what one pass over a VMI knows and decides.
type scope struct {
	vmi *virtv1.VirtualMachineInstance
	now time.Time
	// pod is the VMI's launcher pod, provisioner its provisioning pod; nil when there is none.
	pod         *corev1.Pod
	provisioner *corev1.Pod
	// attachments are the pods of volumes that came after the launcher pod.
	attachments []*corev1.Pod
	// volumes are the VMI's claims; set by waitForVolumes.
	volumes []volumeState
	// state is the claim of what the VMI keeps beside its disks, nil for none; set by makeState.
	state *volumeState
	// wanted is the status to write; it starts as the VMI's own, and steps change it.
	wanted status
	result ctrl.Result
}

func (r *Reconciler) newScope(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (*scope, error) {
	s := &scope{vmi: vmi, now: r.now(), wanted: statusOf(vmi)}
	pods := &corev1.PodList{}
	err := r.List(ctx, pods, client.InNamespace(vmi.Namespace), client.MatchingFields{podIndex: string(vmi.UID)})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	for i := range pods.Items {
		s.take(&pods.Items[i])
	}
	return s, nil
}

// take sorts a pod of the VMI into the scope. Of several launcher pods, which only a
// stale cache can bring about, the oldest counts.
func (s *scope) take(p *corev1.Pod) {
	switch p.Labels[names.LabelPod] {
	case pod.KindProvisioner:
		s.provisioner = p
	case pod.KindAttachment, pod.KindAttachmentTrigger:
		s.attachments = append(s.attachments, p)
	case pod.KindLauncher:
		if s.pod == nil || p.CreationTimestamp.Before(&s.pod.CreationTimestamp) {
			s.pod = p
		}
	}
}

// requeueAfter asks for another pass after d, or sooner when one was asked for.
func (s *scope) requeueAfter(d time.Duration) {
	if s.result.RequeueAfter == 0 || d < s.result.RequeueAfter {
		s.result.RequeueAfter = max(d, time.Millisecond)
	}
}
