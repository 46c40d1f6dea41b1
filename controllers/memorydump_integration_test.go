//go:build integration

package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hotplug"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// The claim for a dump of a guest's memory is brought to the node when the VMI gets the volume, and
// let go of with it. The test is the VM's controller, scheduler, kubelet and virt-handler.
func TestTheClaimOfAMemoryDumpComesAndGoes(t *testing.T) {
	c := start(t)
	key, launcher := c.run(t, "dumped")
	claim := c.claim(t, key.Namespace, "dumps", "")
	claim.Status.Phase = corev1.ClaimBound
	must(t, c.Status().Update(t.Context(), claim))
	c.changeVolumes(t, key, hotplug.AddDump)
	p := c.podOf(t, key, pod.KindAttachment)
	if p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "dumps" || pod.Mounts(launcher, "dumps", "dumps") {
		t.Errorf("the pods have %+v and %+v", p.Spec.Volumes, launcher.Spec.Volumes)
	}
	attached := &virtv1.HotplugVolumeStatus{AttachPodName: p.Name, AttachPodUID: p.UID}
	c.volumes(t, key, virtv1.VolumeStatus{Name: "dumps", Phase: virtv1.MemoryDumpVolumeCompleted, HotplugVolume: attached})
	c.changeVolumes(t, key, hotplug.RemoveDump)
	if q := c.podOf(t, key, pod.KindAttachment); q.UID != p.UID {
		t.Errorf("pod %s took the place of %s", q.Name, p.Name)
	}
	c.volumes(t, key, virtv1.VolumeStatus{Name: "dumps", Phase: virtv1.HotplugVolumeUnMounted, HotplugVolume: attached})
	c.gone(t, p)
}

// changeVolumes changes the running VMI's volume for dumps to the claim dumps.
func (c *cluster) changeVolumes(t *testing.T, key client.ObjectKey, change func(*virtv1.VirtualMachineInstanceSpec, string)) {
	t.Helper()
	vmi := c.vmi(t, key)
	changed := vmi.DeepCopy()
	change(&changed.Spec, "dumps")
	must(t, as(t, c.config, "system:serviceaccount:"+installed+":virt-controller").Patch(t.Context(), changed, client.MergeFrom(vmi)))
}

// volumes is virt-handler: what it says of volumes of a guest that runs.
func (c *cluster) volumes(t *testing.T, key client.ObjectKey, all ...virtv1.VolumeStatus) {
	t.Helper()
	vmi := c.vmi(t, key)
	must(t, apply.Fields(t.Context(), c, vmi, names.ManagerHandler, map[string]any{"status": map[string]any{
		"phase": virtv1.Running, "phaseTransitionTimestamps": vmi.Status.PhaseTransitionTimestamps, "conditions": vmi.Status.Conditions, "volumeStatus": all,
	}}))
}
