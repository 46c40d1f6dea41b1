//go:build integration

package handler_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// plugsDevice is virt-handler's part of a volume of mode Block: its device goes to the launcher open.
func (w *world) plugsDevice(t *testing.T) {
	defer w.startHandler(t)(syscall.SIGTERM)
	vmi := w.newVMI(t, "plugs-device", 20)
	pod := w.newPod(t, vmi)
	pod.run(t, "container-disk", pod.file(t)).wait(t)
	launcher := pod.run(t, "launcher", string(vmi.UID))
	launcher.expect(t, "greeted", "sync plugs-device with disks [root] 1")
	w.eventually(t, vmi, "Running", func() bool { return vmi.Status.Phase == v1.Running })

	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: "claim-of-data"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	must(t, client.IgnoreAlreadyExists(w.client.Create(t.Context(), claim)))
	device := loopDevice(t)
	rival, err := os.OpenFile(device, os.O_RDWR|os.O_EXCL, 0)
	must(t, err)
	w.setVolumes(t, vmi, "root", "data")
	attachment := w.newAttachment(t, vmi, "data", claim.Name, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	})
	attachment.run(t, "volume", "data").expect(t, "greeted")
	launcher.expect(t, "sync plugs-device with disks [] 0")
	w.eventually(t, vmi, "waiting for the device", func() bool {
		for _, status := range vmi.Status.VolumeStatus {
			if status.Name == "data" && status.Reason == "FailedAttach" {
				return strings.Contains(status.Message, "claim claim-of-data: the device is in use by another virtual machine")
			}
		}
		return false
	})
	must(t, rival.Close())
	launcher.expect(t, "plug data with a device of 1048576 and a folder of 107")
	w.eventually(t, vmi, "with the disk", volumeIn(vmi, v1.VolumeReady, "VolumeReady"))

	w.delete(t, vmi)
	launcher.expectShutdown(t, 20, "over")
	must(t, w.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(vmi.Namespace),
		client.MatchingLabels{v1.AppLabel: names.AppAttachment}, client.GracePeriodSeconds(0)))
}

// loopDevice makes a block device of a mebibyte, which the processes of pods have as /dev/data.
func loopDevice(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "device")
	must(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	out, err := exec.Command("losetup", "-f", "--show", file).Output()
	must(t, err)
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if err := exec.Command("losetup", "-d", device).Run(); err != nil {
			t.Error(errors.Join(errors.New("removing the block device"), err))
		}
	})
	var stat unix.Stat_t
	must(t, unix.Stat(device, &stat))
	t.Setenv("POD_BLOCK", fmt.Sprintf("%d %d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev)))
	return device
}
