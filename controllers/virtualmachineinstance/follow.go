package virtualmachineinstance

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// schedulerPatience is how long the scheduler may take before the VMI says that it waits for it.
const schedulerPatience = 2 * time.Second

// followPod moves the VMI along with its pod: Scheduling once the pod is bound or
// cannot be, Scheduled once its compute container runs, and the end when it ends.
// From then on virt-handler speaks for the guest.
func (r *Reconciler) followPod(ctx context.Context, s *scope) error {
	if s.pod == nil {
		return r.noteMissingPod(ctx, s)
	}
	if rejected(s.pod) {
		return r.replaceRejected(ctx, s)
	}
	if verdict := endOf(s.pod); verdict != nil {
		r.end(s, verdict)
		return steps.ErrDone
	}
	if err := r.endProvisioning(ctx, s); err != nil {
		return err
	}
	r.noteLauncher(s)
	if s.vmi.Status.Phase == virtv1.Running {
		endStart(s)
		if err := r.followSizes(ctx, s); err != nil {
			return err
		}
		return steps.ErrDone
	}
	if s.pod.Spec.NodeName == "" {
		if err := r.noteUnscheduled(ctx, s); err != nil {
			return err
		}
		return steps.ErrDone
	}
	noteProvisioned(s)
	s.wanted.NodeName = s.pod.Spec.NodeName
	s.wanted.Label = s.pod.Spec.NodeName
	s.wanted.ActivePods = map[types.UID]string{s.pod.UID: s.pod.Spec.NodeName}
	if running(s.pod, names.ComputeContainer) {
		s.enterOnce(virtv1.Scheduling)
		s.enter(virtv1.Scheduled)
		endStart(s)
		return steps.ErrDone
	}
	s.enter(virtv1.Scheduling)
	if err := r.noteContainers(ctx, s); err != nil {
		return err
	}
	return steps.ErrDone
}

// noteLauncher notes the image of the VMI's launcher, and whether a restart would bring a newer
// one: an upgrade leaves the launchers of running virtual machines alone. It is told with the
// node, so that it needs no write of its own.
func (r *Reconciler) noteLauncher(s *scope) {
	if s.pod.Spec.NodeName == "" {
		return
	}
	for _, container := range s.pod.Spec.Containers {
		if container.Name == names.ComputeContainer {
			s.wanted.Launcher, s.wanted.Outdated = container.Image, container.Image != r.options.LauncherImage
		}
	}
}

// endStart drops what was said of a start that has come to its end.
func endStart(s *scope) {
	for _, kind := range []virtv1.VirtualMachineInstanceConditionType{conditionPodScheduled, conditionSynchronized, conditionProvisioning} {
		s.dropCondition(kind)
	}
}

// noteProvisioned ends what the conditions said of volumes: the pod has a node, so they
// are there.
func noteProvisioned(s *scope) {
	s.dropCondition(conditionPodScheduled)
	if usesDataVolumes(s.vmi) {
		s.setCondition(conditionDataVolumes, corev1.ConditionTrue, virtv1.VirtualMachineInstanceReasonAllDVsReady, "All of the VMI's DVs are bound and ready")
	}
	for _, c := range s.wanted.Conditions {
		if c.Type == conditionProvisioning && c.Reason != reasonPulling && c.Reason != reasonWaiting {
			s.dropCondition(conditionProvisioning)
			return
		}
	}
}

// enterOnce enters phase unless the VMI has been in it before: a fast start passes
// through two phases in one write.
func (s *scope) enterOnce(phase virtv1.VirtualMachineInstancePhase) {
	for _, t := range s.wanted.Transitions {
		if t.Phase == phase {
			return
		}
	}
	s.enter(phase)
}

// noteMissingPod ends a VMI whose pod has gone under it; one that has no pod yet goes on. A
// pod that only the cache does not show, as after a change of leader, has not gone.
func (r *Reconciler) noteMissingPod(ctx context.Context, s *scope) error {
	switch s.vmi.Status.Phase {
	case virtv1.Scheduled, virtv1.Running:
	default:
		return nil
	}
	unseen, err := r.livePod(ctx, s.vmi, pod.KindLauncher)
	if err != nil {
		return err
	}
	if unseen != nil {
		return steps.ErrDone // its event brings the next pass
	}
	r.end(s, &verdict{
		phase: virtv1.Failed, reason: reasonPodDeleted,
		message: "the launcher pod was deleted",
	})
	return steps.ErrDone
}

// end notes the verdict on a pod that ended, unless virt-handler has already said more.
func (r *Reconciler) end(s *scope, v *verdict) {
	if s.vmi.IsFinal() {
		return
	}
	s.enter(v.phase)
	s.wanted.Reason = v.reason
	s.setCondition(conditionSynchronized, conditionOf(v.phase == virtv1.Succeeded), v.reason, v.message)
	s.dropCondition(conditionProvisioning)
	s.dropCondition(conditionPodScheduled)
	if v.phase == virtv1.Failed {
		r.warning(s.vmi, s.pod, v.reason, "The virtual machine ended: %s", v.message)
	}
}

func conditionOf(is bool) corev1.ConditionStatus {
	if is {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// noteUnscheduled says why the scheduler has not placed the pod. In a normal start it
// has within milliseconds, and nothing is written.
func (r *Reconciler) noteUnscheduled(ctx context.Context, s *scope) error {
	scheduled := podCondition(s.pod, corev1.PodScheduled)
	if scheduled == nil || scheduled.Status != corev1.ConditionFalse {
		if waited := s.now.Sub(s.pod.CreationTimestamp.Time); waited < schedulerPatience {
			s.requeueAfter(schedulerPatience - waited)
			return nil
		}
		s.enter(virtv1.Scheduling)
		return nil
	}
	replaced, err := r.replaceUnfit(ctx, s)
	if err != nil || replaced {
		return err
	}
	s.enter(virtv1.Scheduling)
	reason, message := scheduled.Reason, scheduled.Message
	if reason == "" {
		reason = ReasonUnschedulable
	}
	if wantsKVM(s.pod) {
		hint, err := r.explainKVM(ctx)
		if err != nil {
			return err
		}
		message += hint
		if hint, err = r.explainProcessor(ctx, s.vmi); err != nil {
			return err
		}
		message += hint
	}
	if pod.HasVSOCK(s.vmi) {
		hint, err := r.explainVSOCK(ctx)
		if err != nil {
			return err
		}
		message += hint
	}
	s.setCondition(conditionPodScheduled, corev1.ConditionFalse, reason, message)
	return nil
}

// noteContainers says what a pod that is on its node still waits for.
func (r *Reconciler) noteContainers(ctx context.Context, s *scope) error {
	waiting := waitingContainer(s.pod)
	if waiting == nil {
		return nil
	}
	if reason := waiting.State.Waiting.Reason; isPullFailure(reason) {
		message := fmt.Sprintf("image %s of container %s: %s", waiting.Image, waiting.Name, waiting.State.Waiting.Message)
		s.setCondition(conditionSynchronized, corev1.ConditionFalse, reason, message)
		s.dropCondition(conditionProvisioning)
		return nil
	}
	s.dropCondition(conditionSynchronized)
	return r.noteSlowStart(ctx, s, waiting)
}

func isPullFailure(reason string) bool {
	switch reason {
	case ReasonErrImagePull, ReasonImagePullBackOff, "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable":
		return true
	}
	return false
}

// running says whether the pod's container name runs.
func running(pod *corev1.Pod, name string) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == name {
			return c.State.Running != nil
		}
	}
	return false
}

// waitingContainer returns the first container, in the order of start, that waits.
func waitingContainer(pod *corev1.Pod) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].State.Waiting != nil {
				return &statuses[i]
			}
			if statuses[i].State.Running != nil {
				return nil
			}
		}
	}
	return nil
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// startedAt is when the pod's containers began to be made on its node.
func startedAt(pod *corev1.Pod) metav1.Time {
	if pod.Status.StartTime != nil {
		return *pod.Status.StartTime
	}
	return pod.CreationTimestamp
}
