//go:build integration

package handler_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dumps is virt-handler's part of a dump of a guest's memory; the test is virt-controller.
func (w *world) dumps(t *testing.T) {
	stop := w.startHandler(t)
	vmi := w.newVMI(t, "dumps", 20)
	pod := w.newPod(t, vmi)
	pod.run(t, "container-disk", pod.file(t)).wait(t)
	launcher := pod.run(t, "launcher", string(vmi.UID))
	launcher.expect(t, "greeted", "sync dumps with disks [root] 1")
	w.eventually(t, vmi, "Running", func() bool { return vmi.Status.Phase == v1.Running })

	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: "data"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	must(t, w.client.Create(t.Context(), claim))
	w.setDump(t, vmi, "data")
	launcher.expect(t, "sync dumps with disks [] 0")
	w.eventually(t, vmi, "waiting for the claim", volumeIn(vmi, v1.VolumePending, "PVCNotReady"))
	attachment := w.newAttachment(t, vmi, "data", claim.Name)
	attachment.run(t, "volume", "data").expect(t, "greeted")
	launcher.expect(t, "dump data with marker")
	w.eventually(t, vmi, "dumping", volumeIn(vmi, v1.MemoryDumpVolumeInProgress, "VolumeMountedToPod"))

	stop(syscall.SIGKILL)
	launcher.expect(t, "lost")
	stop = w.startHandler(t)
	launcher.expect(t, "greeted", "sync dumps with disks [] 0") // and no other dump
	must(t, os.WriteFile(filepath.Join(pod.folder, "dumped"), nil, 0o666))
	w.eventually(t, vmi, "dumped", volumeIn(vmi, v1.MemoryDumpVolumeCompleted, "VolumeReady"))
	info := dumpInfo(vmi)
	if !strings.HasPrefix(info.TargetFileName, "dumps-data-2") || !strings.HasSuffix(info.TargetFileName, ".memory.dump") || info.EndTimestamp == nil {
		t.Errorf("got %+v", info)
	}
	w.setDump(t, vmi)
	launcher.expect(t, "sync dumps with disks [] 0")
	w.eventually(t, vmi, "letting go of the claim", volumeIn(vmi, v1.HotplugVolumeUnMounted, "VolumeUnMountedFromPod"))

	w.delete(t, vmi)
	launcher.expectShutdown(t, 20, "over")
	stop(syscall.SIGTERM)
}

// refusesDumps is what becomes of a dump where the launcher is of an earlier version.
func (w *world) refusesDumps(t *testing.T) {
	stop := w.startHandler(t)
	vmi := w.newVMI(t, "ancient", 20)
	pod := w.newPod(t, vmi)
	pod.run(t, "container-disk", pod.file(t)).wait(t)
	launcher := pod.run(t, "old", string(vmi.UID))
	launcher.expect(t, "greeted", "sync ancient with disks [root] 1")
	w.eventually(t, vmi, "Running", func() bool { return vmi.Status.Phase == v1.Running })
	w.setDump(t, vmi, "data")
	launcher.expect(t, "sync ancient with disks [] 0")
	attachment := w.newAttachment(t, vmi, "data", "data")
	attachment.run(t, "volume", "data").expect(t, "greeted")
	w.eventually(t, vmi, "refused", func() bool {
		for _, status := range vmi.Status.VolumeStatus {
			if status.Phase == v1.MemoryDumpVolumeFailed {
				return strings.Contains(status.Message, "restart the VM")
			}
		}
		return false
	})
	w.delete(t, vmi)
	launcher.expectShutdown(t, 20, "over")
	stop(syscall.SIGTERM)
}

func dumpInfo(vmi *v1.VirtualMachineInstance) v1.DomainMemoryDumpInfo {
	for _, status := range vmi.Status.VolumeStatus {
		if status.MemoryDumpVolume != nil {
			return *status.MemoryDumpVolume
		}
	}
	return v1.DomainMemoryDumpInfo{}
}

// setDump leaves vmi with its first volume and one for dumps on each of claims.
func (w *world) setDump(t *testing.T, vmi *v1.VirtualMachineInstance, claims ...string) {
	t.Helper()
	w.get(t, vmi)
	changed := vmi.DeepCopy()
	changed.Spec.Volumes = changed.Spec.Volumes[:1]
	for _, name := range claims {
		source := &v1.MemoryDumpVolumeSource{}
		source.ClaimName, source.Hotpluggable = name, true
		changed.Spec.Volumes = append(changed.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{MemoryDump: source}})
	}
	must(t, w.client.Patch(t.Context(), changed, client.MergeFrom(vmi)))
}
