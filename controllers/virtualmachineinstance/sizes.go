package virtualmachineinstance

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
)

// Reasons of the conditions that tell of a change of the running guest's size. The third,
// names.ReasonPodResized, is virt-handler's sign to go on.
const (
	reasonResizing      = "ResizingPod"      // True: the pod does not have what the guest will need
	reasonResizeRefused = "PodResizeRefused" // False: the cluster does not resize the pod
	reasonGuestStayed   = "GuestNotChanged"  // False: virt-handler or the guest did not do its part
)

// guestPatience is how long virt-handler and the guest may take.
const guestPatience = 2 * time.Minute

// sizeChange is a way in which a running guest can be changed.
type sizeChange struct {
	condition virtv1.VirtualMachineInstanceConditionType
	// open says whether the guest does not have yet what the spec says.
	open func(*virtv1.VirtualMachineInstance) bool
}

var sizeChanges = []sizeChange{
	{condition: conditionVCPUChange, open: func(vmi *virtv1.VirtualMachineInstance) bool {
		now, cpu := vmi.Status.CurrentCPUTopology, vmi.Spec.Domain.CPU
		return now != nil && cpu != nil && now.Sockets != cpu.Sockets
	}},
	{condition: conditionMemoryChange, open: func(vmi *virtv1.VirtualMachineInstance) bool {
		now, memory := vmi.Status.Memory, vmi.Spec.Domain.Memory
		return now != nil && now.GuestRequested != nil && memory != nil && memory.Guest != nil && now.GuestRequested.Cmp(*memory.Guest) != 0
	}},
}

// followSizes carries a change of the running guest's size through: the pod grows first,
// so that the node has the room, and then the guest. What the node refuses waits in a
// condition, for the node to have room again or for the change to be taken back.
func (r *Reconciler) followSizes(ctx context.Context, s *scope) error {
	var open, told []sizeChange
	for _, c := range sizeChanges {
		if c.open(s.vmi) {
			open = append(open, c)
		} else if s.condition(c.condition) != nil {
			told = append(told, c)
		}
	}
	if len(open)+len(told) == 0 {
		return nil
	}
	fits, refusal, err := r.resizePod(ctx, s)
	if err != nil {
		return err
	}
	for _, c := range told { // done, or taken back
		s.dropCondition(c.condition)
	}
	for _, c := range open {
		r.noteSize(s, c.condition, fits, refusal)
	}
	return nil
}

// noteSize says how far a change has come.
func (r *Reconciler) noteSize(s *scope, kind virtv1.VirtualMachineInstanceConditionType, fits bool, refusal *refusal) {
	old := s.condition(kind)
	switch {
	case refusal != nil:
		if old == nil || old.Reason != refusal.reason {
			r.warning(s.vmi, s.pod, refusal.reason, "The guest keeps its size: %s", refusal.message)
		}
		s.setCondition(kind, corev1.ConditionFalse, refusal.reason, refusal.message)
	case !fits:
		s.setCondition(kind, corev1.ConditionTrue, reasonResizing, "the pod's resources are being changed")
	case old != nil && old.Reason == reasonGuestStayed:
	case old != nil && old.Status == corev1.ConditionTrue && s.now.Sub(old.LastTransitionTime.Time) >= guestPatience:
		const message = "the guest did not take the change up; the VMI's events may tell why"
		r.warning(s.vmi, s.pod, reasonGuestStayed, "%s", message)
		s.setCondition(kind, corev1.ConditionFalse, reasonGuestStayed, message)
	default:
		s.setCondition(kind, corev1.ConditionTrue, names.ReasonPodResized, "the pod has the resources; the guest is being changed")
		s.requeueAfter(guestPatience - s.now.Sub(s.condition(kind).LastTransitionTime.Time))
	}
}

// refusal is why a pod does not get other resources.
type refusal struct{ reason, message string }

// resizePod gives the launcher pod the resources that the VMI's spec asks for now. It says
// whether the pod has them, and if it does not, whether somebody refused.
func (r *Reconciler) resizePod(ctx context.Context, s *scope) (bool, *refusal, error) {
	config, err := r.readSettings(ctx)
	if err != nil {
		return false, nil, err
	}
	want, err := pod.Resizable(pod.Input{
		VMI: s.vmi, KVM: wantsKVM(s.pod), CPURatio: config.cpuRatio, MemoryOvercommit: config.memoryOvercommit,
		OverheadRatio: config.overheadRatio, LimitCPU: limitsCPU(s.pod), // a limit can be changed, but not come or go
	})
	if err != nil {
		return false, nil, fmt.Errorf("computing the pod's resources of %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	if !covers(specResources(s.pod), want, 0) || !covers(want, specResources(s.pod), 0) {
		err := r.patchSize(ctx, s, want)
		if refusal := refused(err); refusal != nil {
			return false, refusal, nil
		}
		return false, nil, err
	}
	for _, c := range s.pod.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.PodResizePending:
			return false, &refusal{reason: c.Reason, message: "the node does not give the pod the resources: " + c.Message}, nil
		case c.Type == corev1.PodResizeInProgress && c.Reason == corev1.PodReasonError:
			return false, &refusal{reason: c.Reason, message: "the node failed to change the pod's resources: " + c.Message}, nil
		case c.Type == corev1.PodResizeInProgress:
			return false, nil, nil
		}
	}
	const rounding = 1 // kernels count shares of a processor, not thousandths
	return covers(statusResources(s.pod), want, rounding), nil, nil
}

// limitsCPU says whether pod's compute container is held to so much of processors.
func limitsCPU(pod *corev1.Pod) bool {
	_, limited := specResources(pod).Limits[corev1.ResourceCPU]
	return limited
}

// patchSize asks for other resources of the running pod, unless that was refused. A
// refusal is no failure: the guest stays as it is, and the condition says why.
func (r *Reconciler) patchSize(ctx context.Context, s *scope, want corev1.ResourceRequirements) error {
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": names.ComputeContainer, "resources": want},
	}}})
	if err != nil {
		return fmt.Errorf("encoding the pod's resources of %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	err = r.SubResource("resize").Patch(ctx, s.pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, data), client.FieldOwner(names.ManagerController))
	if err != nil {
		return fmt.Errorf("resizing the launcher pod of %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	return nil
}

// refused says why the API server does not let a pod be resized; nil for other errors.
func refused(err error) *refusal {
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err) {
		return &refusal{reason: reasonResizeRefused, message: "the cluster does not resize the pod: " + err.Error()}
	}
	return nil
}

// covers says whether has is enough for want, but for so many percent.
func covers(has, want corev1.ResourceRequirements, percent int64) bool {
	return listCovers(has.Requests, want.Requests, percent) && listCovers(has.Limits, want.Limits, percent)
}

func listCovers(has, want corev1.ResourceList, percent int64) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		wanted, there := want[name]
		if !there {
			continue
		}
		quantity, ok := has[name]
		if !ok || quantity.AsApproximateFloat64()*100 < wanted.AsApproximateFloat64()*float64(100-percent) {
			return false
		}
	}
	return true
}

func specResources(p *corev1.Pod) corev1.ResourceRequirements {
	for _, c := range p.Spec.Containers {
		if c.Name == names.ComputeContainer {
			return c.Resources
		}
	}
	return corev1.ResourceRequirements{}
}

// statusResources are what the node gives the compute container by now.
func statusResources(p *corev1.Pod) corev1.ResourceRequirements {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == names.ComputeContainer && c.Resources != nil {
			return *c.Resources
		}
	}
	return corev1.ResourceRequirements{}
}
