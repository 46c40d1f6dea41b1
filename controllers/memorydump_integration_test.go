//go:build integration

package controllers

import (
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// A dump of a guest's memory brings its claim to the node, by way of VM and VMI, and lets go of it
// again. The test is virt-api, scheduler, kubelet and virt-handler.
func TestTheClaimOfAMemoryDumpComesAndGoes(t *testing.T) {
	c := start(t)
	key, launcher := c.run(t, "dumped")
	claim := c.claim(t, key.Namespace, "dumps", "")
	claim.Status.Phase = corev1.ClaimBound
	must(t, c.Status().Update(t.Context(), claim))
	vm := &virtv1.VirtualMachine{}
	must(t, c.Get(t.Context(), key, vm))
	asked := vm.DeepCopy()
	asked.Status.MemoryDumpRequest = &virtv1.VirtualMachineMemoryDumpRequest{ClaimName: "dumps", Phase: virtv1.MemoryDumpAssociating}
	must(t, c.Status().Patch(t.Context(), asked, client.MergeFrom(vm)))

	p := c.podOf(t, key, pod.KindAttachment)
	if p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "dumps" || pod.Mounts(launcher, "dumps", "dumps") {
		t.Errorf("the pods have %+v and %+v", p.Spec.Volumes, launcher.Spec.Volumes)
	}
	c.dumpIs(t, key, virtv1.MemoryDumpInProgress)
	c.volumes(t, key, virtv1.VolumeStatus{
		Name: "dumps", Phase: virtv1.MemoryDumpVolumeCompleted, HotplugVolume: &virtv1.HotplugVolumeStatus{AttachPodName: p.Name, AttachPodUID: p.UID},
		MemoryDumpVolume: &virtv1.DomainMemoryDumpInfo{ClaimName: "dumps", TargetFileName: "dumped-dumps-1.memory.dump"},
	})
	c.dumpIs(t, key, virtv1.MemoryDumpUnmounting)
	gomega.NewWithT(t).Eventually(func() int { return len(c.vmi(t, key).Spec.Volumes) }, bound, "50ms").Should(gomega.Equal(1), "volumes of the instance")
	c.volumes(t, key, virtv1.VolumeStatus{
		Name: "dumps", Phase: virtv1.HotplugVolumeUnMounted, HotplugVolume: &virtv1.HotplugVolumeStatus{AttachPodName: p.Name, AttachPodUID: p.UID},
	})
	c.gone(t, p)
	c.volumes(t, key)
	vm = c.dumpIs(t, key, virtv1.MemoryDumpCompleted)
	if *vm.Status.MemoryDumpRequest.FileName != "dumped-dumps-1.memory.dump" || len(vm.Spec.Template.Spec.Volumes) != 2 {
		t.Errorf("got %+v, %+v", vm.Status.MemoryDumpRequest, vm.Spec.Template.Spec.Volumes)
	}
	if got := condition("RestartRequired")(c.vmi(t, key)); got != "none" {
		t.Errorf("RestartRequired: %s", got)
	}
}

// volumes is virt-handler: what it says of volumes of a guest that runs.
func (c *cluster) volumes(t *testing.T, key client.ObjectKey, all ...virtv1.VolumeStatus) {
	t.Helper()
	vmi := c.vmi(t, key)
	must(t, apply.Fields(t.Context(), c, vmi, names.ManagerHandler, map[string]any{"status": map[string]any{
		"phase": virtv1.Running, "phaseTransitionTimestamps": vmi.Status.PhaseTransitionTimestamps, "conditions": vmi.Status.Conditions, "volumeStatus": all,
	}}))
}

func (c *cluster) dumpIs(t *testing.T, key client.ObjectKey, want virtv1.MemoryDumpPhase) *virtv1.VirtualMachine {
	t.Helper()
	vm := &virtv1.VirtualMachine{}
	gomega.NewWithT(t).Eventually(func() (virtv1.MemoryDumpPhase, error) {
		err := c.Get(t.Context(), key, vm)
		if vm.Status.MemoryDumpRequest == nil {
			return "", err
		}
		return vm.Status.MemoryDumpRequest.Phase, err
	}, bound, "50ms").Should(gomega.Equal(want), "memory dump of %s", key)
	return vm
}
