//go:build integration

package handler_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// plugs is virt-handler's part of a volume's coming and going; the test is virt-controller.
func (w *world) plugs(t *testing.T) {
	stop := w.startHandler(t)
	vmi := w.newVMI(t, "plugs", 20)
	pod := w.newPod(t, vmi)
	pod.run(t, "container-disk", pod.file(t)).wait(t)
	launcher := pod.run(t, "launcher", string(vmi.UID))
	launcher.expect(t, "greeted", "sync plugs with disks [root] 1")
	w.eventually(t, vmi, "Running", func() bool { return vmi.Status.Phase == v1.Running })

	w.setVolumes(t, vmi, "root", "data")
	launcher.expect(t, "sync plugs with disks [] 0")
	w.eventually(t, vmi, "waiting for a claim", volumeIn(vmi, v1.VolumePending, "FailedPvcNotFound"))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: "claim-of-data"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	must(t, w.client.Create(t.Context(), claim))
	attachment := w.newAttachment(t, vmi, "data", claim.Name)
	attachment.run(t, "volume", "data").expect(t, "greeted")
	launcher.expect(t, "plug data with marker")
	w.eventually(t, vmi, "with the disk", volumeIn(vmi, v1.VolumeReady, "VolumeReady"))

	stop(syscall.SIGKILL)
	launcher.expect(t, "lost")
	w.get(t, vmi)
	before := vmi.ResourceVersion
	stop = w.startHandler(t)
	launcher.expect(t, "greeted", "sync plugs with disks [] 0")
	if w.get(t, vmi); vmi.ResourceVersion != before && !w.unanswered(t, vmi) {
		t.Errorf("the restart wrote the VMI: %+v", vmi.Status.VolumeStatus)
	}

	w.setVolumes(t, vmi, "root")
	launcher.expect(t, "sync plugs with disks [] 0", "unplug data")
	w.eventually(t, vmi, "losing the disk", volumeIn(vmi, v1.HotplugVolumeDetaching, "Detaching"))
	must(t, os.WriteFile(filepath.Join(pod.folder, "let-go"), nil, 0o666))
	launcher.expect(t, "unplug data")
	w.eventually(t, vmi, "without the disk", volumeIn(vmi, v1.HotplugVolumeUnMounted, "VolumeUnMountedFromPod"))
	must(t, w.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(vmi.Namespace),
		client.MatchingLabels{v1.AppLabel: names.AppAttachment}, client.GracePeriodSeconds(0)))
	w.eventually(t, vmi, "as it was", func() bool { return len(vmi.Status.VolumeStatus) == 1 })

	w.delete(t, vmi)
	launcher.expectShutdown(t, 20, "over")
	stop(syscall.SIGTERM)
}

// volumeIn says whether the status of the volume data is as wanted.
func volumeIn(vmi *v1.VirtualMachineInstance, phase v1.VolumePhase, reason string) func() bool {
	return func() bool {
		for _, status := range vmi.Status.VolumeStatus {
			if status.Name == "data" {
				return status.Phase == phase && status.Reason == reason
			}
		}
		return false
	}
}

// setVolumes leaves vmi with these volumes; data is on a claim.
func (w *world) setVolumes(t *testing.T, vmi *v1.VirtualMachineInstance, volumes ...string) {
	t.Helper()
	w.get(t, vmi)
	changed := vmi.DeepCopy()
	changed.Spec.Volumes, changed.Spec.Domain.Devices.Disks = changed.Spec.Volumes[:1], nil
	for _, name := range volumes[1:] {
		source := v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "claim-of-" + name, Hotpluggable: true}}
		changed.Spec.Volumes = append(changed.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		disk := v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}}
		changed.Spec.Domain.Devices.Disks = append(changed.Spec.Domain.Devices.Disks, disk)
	}
	must(t, w.client.Patch(t.Context(), changed, client.MergeFrom(vmi)))
}

func (w *world) newAttachment(t *testing.T, vmi *v1.VirtualMachineInstance, volume, claim string, options ...func(*corev1.Pod)) *testPod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "hp-volume-" + vmi.Name, Namespace: vmi.Namespace,
		Labels:          map[string]string{v1.AppLabel: names.AppAttachment},
		Annotations:     map[string]string{v1.DomainAnnotation: vmi.Name, names.AnnotationVolume: volume},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind)},
	}}
	pod.Spec.NodeName = nodeName
	pod.Spec.Containers = []corev1.Container{{Name: names.AppAttachment, Image: "x"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	for _, option := range options {
		option(pod)
	}
	return w.placePod(t, pod)
}
