package virtualmachineinstance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
)

// TestAttachmentPodsStayUntilTheGuestHasLetGo is about who may have the claim open.
func TestAttachmentPodsStayUntilTheGuestHasLetGo(t *testing.T) {
	status := func(phase virtv1.VolumePhase) []virtv1.VolumeStatus {
		return []virtv1.VolumeStatus{{Name: "data", Phase: phase, HotplugVolume: &virtv1.HotplugVolumeStatus{AttachPodUID: "p1"}}}
	}
	for name, c := range map[string]struct {
		status []virtv1.VolumeStatus
		wanted bool
		node   string
		phase  corev1.PodPhase
		want   bool
	}{
		"the guest has the disk":                         {status: status(virtv1.VolumeReady), wanted: true, node: "n"},
		"the guest is to let go":                         {status: status(virtv1.HotplugVolumeDetaching), node: "n"},
		"the guest has let go":                           {status: status(virtv1.HotplugVolumeUnMounted), node: "n", want: true},
		"it has, and the volume was added again":         {status: status(virtv1.HotplugVolumeUnMounted), wanted: true, node: "n", want: true},
		"virt-handler has not said anything of it":       {node: "n"},
		"no node has it, and it is not wanted":           {want: true},
		"no node has it yet":                             {wanted: true},
		"it ended":                                       {status: status(virtv1.VolumeReady), wanted: true, node: "n", phase: corev1.PodFailed, want: true},
		"another pod of the volume was let go, not this": {status: []virtv1.VolumeStatus{{Name: "data", Phase: virtv1.HotplugVolumeUnMounted, HotplugVolume: &virtv1.HotplugVolumeStatus{AttachPodUID: "p0"}}}, node: "n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{}
			p.UID, p.Spec.NodeName, p.Status.Phase = "p1", c.node, c.phase
			p.Labels = map[string]string{names.LabelPod: pod.KindAttachment}
			vmi := &virtv1.VirtualMachineInstance{Status: virtv1.VirtualMachineInstanceStatus{VolumeStatus: c.status}}
			if got := attachmentDone(vmi, p, c.wanted); got != c.want {
				t.Errorf("done: %v", got)
			}
		})
	}
}

func TestOnlyVolumesThatTheLauncherLacksCameLate(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{}
	for _, name := range []string{"old", "new", "swapped"} {
		source := virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: name + "-claim"}}
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, virtv1.Volume{Name: name, VolumeSource: source})
	}
	memory := &virtv1.MemoryDumpVolumeSource{}
	memory.ClaimName = "dump-claim"
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, virtv1.Volume{Name: "dump", VolumeSource: virtv1.VolumeSource{MemoryDump: memory}})
	launcher := &corev1.Pod{}
	for volume, claim := range map[string]string{"old": "old-claim", "swapped": "former-claim"} {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
		launcher.Spec.Volumes = append(launcher.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: source})
	}
	late := lateVolumes(vmi, launcher)
	if _, hasNew := late["new"]; !hasNew || len(late) != 3 {
		t.Errorf("got %v", late)
	}
	if _, hasSwapped := late["swapped"]; !hasSwapped {
		t.Errorf("got %v", late)
	}
	if _, hasDump := late["dump"]; !hasDump || claimNamed(vmi, "dump") != "dump-claim" {
		t.Errorf("got %v", late)
	}
}
