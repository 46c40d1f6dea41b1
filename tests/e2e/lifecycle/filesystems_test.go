//go:build e2e

package lifecycle

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// kubeletSync is how long a change of a ConfigMap may take into a pod: the kubelet looks once a minute or so, and this machine may be busy.
const kubeletSync = 5 * time.Minute

// mountTags mounts filesystems by their names at /mnt.
const mountTags = `m() { for t in "$@"; do mkdir -p "/mnt/$t" && mount -t virtiofs "$t" "/mnt/$t" || return; done; }; `

var _ = Describe("guests that mount a ConfigMap and a claim", func() {
	It("see each change of the one, and share the other", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "settings"}, Data: map[string]string{"color": "blue"}}
		suite.Create(ctx, settings, folderClaim(ns, "work"),
			fixture.VM(ns, "writer", fixture.ContainerDisk(suite.TinyImage()), mounts("settings", settingsFolder()), mounts("work", onWork(false))))
		writer := suite.RunningVMI(ctx, ns, "writer")
		expectNoWarnings(ctx, ns)
		Expect(suite.Shell(ctx, writer, mountTags+"m settings work && cat /mnt/settings/color")).To(Equal("blue"))

		By("writing to the claim, which another guest reads")
		Expect(suite.Shell(ctx, writer, "mkdir /mnt/work/shelf && echo a book > /mnt/work/shelf/one && sync && cat /mnt/work/shelf/one")).To(Equal("a book"))
		suite.Create(ctx, fixture.VM(ns, "reader", fixture.ContainerDisk(suite.TinyImage()), mounts("work", onWork(true))))
		reader := suite.RunningVMI(ctx, ns, "reader")
		Expect(suite.Shell(ctx, reader, mountTags+"m work && cat /mnt/work/shelf/one; touch /mnt/work/two 2>/dev/null || echo not for me")).To(Equal("a book\nnot for me"))

		By("seeing the ConfigMap change, and changing nothing in it")
		settings.Data["color"] = "green"
		Expect(suite.World.Client.Update(ctx, settings)).To(Succeed())
		Eventually(func() string { return suite.Shell(ctx, writer, "cat /mnt/settings/color") }).
			WithContext(ctx).WithTimeout(kubeletSync).WithPolling(5 * time.Second).Should(Equal("green"))
		Expect(suite.Shell(ctx, writer, "echo red 2>/dev/null > /mnt/settings/color || cat /mnt/settings/color")).To(Equal("green"))
	}, SpecTimeout(25*time.Minute))
})

// folderClaim is an empty claim of the default StorageClass.
func folderClaim(ns, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	}
}

func settingsFolder() virtv1.VolumeSource {
	return virtv1.VolumeSource{ConfigMap: &virtv1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}
}

func onWork(readOnly bool) virtv1.VolumeSource {
	return virtv1.VolumeSource{PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "work", ReadOnly: readOnly},
	}}
}

// mounts adds a filesystem on the volume that source describes.
func mounts(name string, source virtv1.VolumeSource) fixture.VMOption {
	return func(vm *virtv1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Devices.Filesystems = append(spec.Domain.Devices.Filesystems, virtv1.Filesystem{Name: name, Virtiofs: &virtv1.FilesystemVirtiofs{}})
		spec.Volumes = append(spec.Volumes, virtv1.Volume{Name: name, VolumeSource: source})
	}
}
