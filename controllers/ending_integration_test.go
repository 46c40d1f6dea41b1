//go:build integration

package controllers

import (
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// runAs brings a new VM of a run strategy to Running.
func (c *cluster) runAs(t *testing.T, name string, strategy virtv1.VirtualMachineRunStrategy) (client.ObjectKey, *corev1.Pod) {
	t.Helper()
	vm := newVM(c.namespace(t), name)
	vm.Spec.RunStrategy = &strategy
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	p := c.startGuest(t, key)
	vm = c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
	if vm.Status.RunStrategy != strategy || len(vm.Status.StateChangeRequests) > 0 {
		t.Errorf("a running VM of strategy %s has the status %+v", strategy, vm.Status)
	}
	return key, p
}

// startGuest is scheduler, kubelet and virt-handler for the VM's next pod.
func (c *cluster) startGuest(t *testing.T, key client.ObjectKey, not ...types.UID) *corev1.Pod {
	t.Helper()
	p := c.launcher(t, key, not...)
	c.bind(t, p, nodeName)
	c.vmiSays(t, key, string(virtv1.Scheduling), phase)
	c.report(t, p, computeRuns)
	c.vmiSays(t, key, string(virtv1.Scheduled), phase)
	c.guestRuns(t, key)
	return p
}

// guestEnds is virt-handler, and the kubelet that ends the pod. The guest has run for a second, however long the test took: one that has
// run for long has not failed to start.
func (c *cluster) guestEnds(t *testing.T, key client.ObjectKey, p *corev1.Pod, end virtv1.VirtualMachineInstancePhase) {
	t.Helper()
	vmi, ended := c.vmi(t, key), metav1.Now()
	for _, entered := range vmi.Status.PhaseTransitionTimestamps {
		if entered.Phase == virtv1.Running {
			ended = metav1.NewTime(entered.PhaseTransitionTimestamp.Add(time.Second))
		}
	}
	must(t, apply.Fields(t.Context(), c, vmi, names.ManagerHandler, map[string]any{"status": map[string]any{
		"phase": end,
		"phaseTransitionTimestamps": append(vmi.Status.PhaseTransitionTimestamps, virtv1.VirtualMachineInstancePhaseTransitionTimestamp{
			Phase: end, PhaseTransitionTimestamp: ended,
		}),
	}}))
	must(t, client.IgnoreNotFound(c.Delete(t.Context(), p, client.GracePeriodSeconds(0))))
}

// stays makes sure that the VM's instance goes on to be the one that ended so.
func (c *cluster) stays(t *testing.T, key client.ObjectKey, uid types.UID, end virtv1.VirtualMachineInstancePhase) {
	t.Helper()
	gomega.NewWithT(t).Consistently(func() (string, error) {
		vmi := &virtv1.VirtualMachineInstance{}
		err := c.Get(t.Context(), key, vmi)
		return string(vmi.UID) + " " + string(vmi.Status.Phase), err
	}, "3s", "100ms").Should(gomega.Equal(string(uid)+" "+string(end)), "VMI %s stays as it ended", key)
}

func TestAPowerOffEndsWhatRerunsOnFailure(t *testing.T) {
	c := start(t)
	key, p := c.runAs(t, "installer", virtv1.RunStrategyRerunOnFailure)
	first := c.vmi(t, key).UID
	c.guestEnds(t, key, p, virtv1.Succeeded)
	c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)
	c.stays(t, key, first, virtv1.Succeeded)
	if vm := c.vmIs(t, key, virtv1.VirtualMachineStatusStopped); len(vm.Status.StateChangeRequests) > 0 || vm.Status.StartFailure != nil {
		t.Errorf("a VM whose guest powered off has the status %+v", vm.Status)
	}

	// Who wants it again halts it, and lets it run.
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	must(t, c.Patch(t.Context(), vm, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Halted"}}`))))
	c.gone(t, &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)
	must(t, c.Patch(t.Context(), vm, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"RerunOnFailure"}}`))))
	c.startGuest(t, key, p.UID)
	c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
}

func TestAFailureStartsAgainWhatRerunsOnFailure(t *testing.T) {
	c := start(t)
	key, p := c.runAs(t, "rerun", virtv1.RunStrategyRerunOnFailure)
	first := c.vmi(t, key).UID
	becomes := c.becoming(t, key)
	c.guestEnds(t, key, p, virtv1.Failed)
	vm := becomes(virtv1.VirtualMachineStatusCrashLoopBackOff)
	if vm.Status.StartFailure == nil || vm.Status.StartFailure.LastFailedVMIUID != first || vm.Status.StartFailure.ConsecutiveFailCount != 1 {
		t.Errorf("the failure is told as %+v", vm.Status.StartFailure)
	}
	if requests := vm.Status.StateChangeRequests; len(requests) != 1 || requests[0].Action != virtv1.StartRequest {
		t.Errorf("the start that is to come is told as %+v", requests)
	}
	second := c.startGuest(t, key, p.UID)
	vm = c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
	if again := c.vmi(t, key).UID; again == first {
		t.Error("the VMI is the same")
	}
	gomega.NewWithT(t).Eventually(func() (int, error) {
		err := c.Get(t.Context(), key, vm)
		return len(vm.Status.StateChangeRequests), err
	}, bound, "50ms").Should(gomega.BeZero(), "the request for a start is met")

	// A VMI that somebody deletes is not started again, as the field has it.
	must(t, c.Delete(t.Context(), c.vmi(t, key)))
	must(t, client.IgnoreNotFound(c.Delete(t.Context(), second, client.GracePeriodSeconds(0))))
	c.gone(t, &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)
}

func TestOnceIsOnceHoweverItEnds(t *testing.T) {
	c := start(t)
	for _, end := range []virtv1.VirtualMachineInstancePhase{virtv1.Succeeded, virtv1.Failed} {
		key, p := c.runAs(t, "once", virtv1.RunStrategyOnce)
		first := c.vmi(t, key).UID
		c.guestEnds(t, key, p, end)
		c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)
		c.stays(t, key, first, end)
		must(t, c.Delete(t.Context(), c.vmi(t, key)))
		c.gone(t, &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
		c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)
	}
}

func TestAMissingConfigMapOfAnswersIsNamed(t *testing.T) {
	c := start(t)
	vm := newVM(c.namespace(t), "answers")
	volume := virtv1.Volume{Name: "answers", VolumeSource: virtv1.VolumeSource{Sysprep: &virtv1.SysprepSource{ConfigMap: &corev1.LocalObjectReference{Name: "late"}}}}
	vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, volume)
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	p := c.launcher(t, key)
	c.bind(t, p, nodeName)
	now := metav1.Now()
	must(t, c.Create(t.Context(), &corev1.Event{ // the kubelet's
		ObjectMeta:     metav1.ObjectMeta{Namespace: key.Namespace, GenerateName: "mount-"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		Type:           corev1.EventTypeWarning, Reason: "FailedMount", FirstTimestamp: now, LastTimestamp: now,
		Message: `MountVolume.SetUp failed for volume "answers" : configmap "late" not found`,
	}))
	c.report(t, p, func(status *corev1.PodStatus) {
		status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: names.ComputeContainer, Image: "launcher", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
		}}
	})
	c.vmiSays(t, key, `False FailedMount MountVolume.SetUp failed for volume "answers" : configmap "late" not found`, condition(virtv1.VirtualMachineInstanceSynchronized))
	c.report(t, p, computeRuns)
	c.vmiSays(t, key, string(virtv1.Scheduled), phase)
	c.vmiSays(t, key, "none", condition(virtv1.VirtualMachineInstanceSynchronized))
}
