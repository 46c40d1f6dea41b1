package virtualmachineinstance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// waitForVolumes lets the pass go on once all claims are there, filled and in nobody else's use. Until then
// the VMI's conditions name what is missing, and where claims wait for a consumer, the
// provisioning pod is that.
func (r *Reconciler) waitForVolumes(ctx context.Context, s *scope) error {
	states, err := volumeReader{r.Client}.readVolumes(ctx, s.vmi.Namespace, s.vmi.Spec.Volumes)
	if err != nil {
		return err
	}
	s.volumes = states
	if s.vmi.Status.Phase == virtv1.VmPhaseUnset {
		s.enter(virtv1.Pending)
	}
	rivals, err := r.waitForRivals(ctx, s)
	if err != nil {
		return err
	}
	migrations, err := r.waitForMigrations(ctx, s)
	if err != nil {
		return err
	}
	missing := slices.Concat(lacks(states), withoutFolder(s.vmi, states), rivals, migrations)
	if s.state != nil {
		missing = append(missing, lacks([]volumeState{*s.state})...)
	}
	if len(missing) == 0 {
		return r.endProvisioning(ctx, s)
	}
	noteLacks(s, missing)
	if err := r.provision(ctx, s, missing); err != nil {
		return err
	}
	return steps.ErrDone
}

func lacks(states []volumeState) []lack {
	var missing []lack
	for _, v := range states {
		if l := judge(v); l.need != needNothing {
			missing = append(missing, l)
		}
	}
	return missing
}

// withoutFolder says which claims the guest of vmi cannot mount, for they are block devices.
func withoutFolder(vmi *virtv1.VirtualMachineInstance, states []volumeState) []lack {
	var missing []lack
	all := claims(states)
	for _, state := range states {
		if all[state.name].Block && mounted(vmi, state.name) {
			missing = append(missing, lack{needHelp, ReasonClaimIsBlock, fmt.Sprintf(
				"PVC %s has the volume mode Block, and the guest mounts it as filesystem %s; use a PVC of the mode Filesystem", state.claim, state.name)})
		}
	}
	return missing
}

// noteLacks puts what is missing into conditions: Synchronized is false for what
// somebody must mend, Provisioning true for what only takes time.
func noteLacks(s *scope, missing []lack) {
	var helps, times []lack
	for _, l := range missing {
		if l.need == needHelp {
			helps = append(helps, l)
		} else {
			times = append(times, l)
		}
	}
	note := func(kind virtv1.VirtualMachineInstanceConditionType, value corev1.ConditionStatus, list []lack) {
		if len(list) == 0 {
			s.dropCondition(kind)
			return
		}
		s.setCondition(kind, value, list[0].reason, sentences(list))
	}
	note(conditionSynchronized, corev1.ConditionFalse, helps)
	note(conditionProvisioning, corev1.ConditionTrue, times)
	if usesDataVolumes(s.vmi) {
		s.setCondition(conditionDataVolumes, corev1.ConditionFalse, virtv1.VirtualMachineInstanceReasonNotAllDVsReady, "Not all of the VMI's DVs are ready")
	}
}

func sentences(list []lack) string {
	parts := make([]string, 0, len(list))
	for _, l := range list {
		parts = append(parts, l.message)
	}
	return strings.Join(parts, "; ")
}

func usesDataVolumes(vmi *virtv1.VirtualMachineInstance) bool {
	for _, volume := range vmi.Spec.Volumes {
		if volume.DataVolume != nil {
			return true
		}
	}
	return false
}

// provision makes the provisioning pod when claims wait for a consumer and all claims
// exist, and passes on why it cannot be placed.
func (r *Reconciler) provision(ctx context.Context, s *scope, missing []lack) error {
	if !wantConsumer(missing) {
		return r.endProvisioning(ctx, s)
	}
	for _, v := range s.volumes {
		if v.pvc == nil {
			return nil
		}
	}
	if s.provisioner != nil {
		noteProvisioner(s)
		return nil
	}
	in, err := r.podInput(ctx, s)
	if err != nil {
		return err
	}
	p, err := pod.Provisioner(in)
	if err != nil {
		return r.noteFailedCreate(s, err)
	}
	existing, err := r.livePod(ctx, s.vmi, pod.KindProvisioner)
	if err != nil || existing != nil {
		return err
	}
	if err := r.Create(ctx, p, client.FieldOwner(names.ManagerController)); err != nil {
		return r.noteFailedCreate(s, fmt.Errorf("creating the provisioning pod of %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err))
	}
	return nil
}

func wantConsumer(missing []lack) bool {
	for _, l := range missing {
		if l.need == needConsumer {
			return true
		}
	}
	return false
}

// noteProvisioner says why the provisioning pod has no node.
func noteProvisioner(s *scope) {
	c := podCondition(s.provisioner, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse {
		s.dropCondition(conditionPodScheduled)
		return
	}
	s.setCondition(conditionPodScheduled, corev1.ConditionFalse, c.Reason, c.Message)
}

// endProvisioning deletes the provisioning pod when no claim needs it any more: once it
// has ended by itself, or no node takes it. A pod that is deleted while the scheduler
// or the kubelet is at work on it makes them warn.
func (r *Reconciler) endProvisioning(ctx context.Context, s *scope) error {
	p := s.provisioner
	if p == nil || p.DeletionTimestamp != nil || !idle(p) {
		return nil
	}
	err := r.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting provisioning pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// idle says whether nobody is at work on the pod.
func idle(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true
	}
	scheduled := podCondition(pod, corev1.PodScheduled)
	return pod.Spec.NodeName == "" && scheduled != nil && scheduled.Status == corev1.ConditionFalse
}
