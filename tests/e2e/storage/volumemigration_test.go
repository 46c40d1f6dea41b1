//go:build e2e

package storage

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a virtual machine whose volume is moved to another StorageClass", func() {
	It("has its disk there when it starts again, from a file to a device and back, and the old claim stays as it was", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		class := another(ctx, "moved-")
		vm := fixture.VM(ns, "web", fixture.ContainerDisk(suite.TinyImage()), fixture.Template("data", fixture.DataVolume(ns, "data", "64Mi")))
		vm.Spec.UpdateVolumesStrategy = new(virtv1.UpdateVolumesStrategyMigration)
		suite.Create(ctx, vm)
		suite.Shell(ctx, suite.RunningVMI(ctx, ns, "web"), "set -e; mkfs.ext2 /dev/vdb; mkdir -p /mnt; mount /dev/vdb /mnt; echo kept > /mnt/file; umount /mnt; sync")

		device := fixture.DataVolume(ns, "device", "128Mi", fixture.Block())
		device.Annotations[names.AnnotationBind] = "false" // the copy is what it waits for
		device.Spec.Storage.StorageClassName = &class.Name
		By("asking for the move while it runs")
		Expect(changed(ctx, ns, func(vm *virtv1.VirtualMachine) { moveTo(vm, fixture.Template("data", device)) })).To(
			MatchError(ContainSubstring("stop the VM first")))

		By("asking for it when it has stopped")
		Expect(changed(ctx, ns, func(vm *virtv1.VirtualMachine) { fixture.Strategy(virtv1.RunStrategyHalted)(vm) })).To(Succeed())
		suite.VMStatus(ctx, ns, "web", virtv1.VirtualMachineStatusStopped)
		before := claimOf(ctx, ns, "data")
		Expect(changed(ctx, ns, func(vm *virtv1.VirtualMachine) { moveTo(vm, fixture.Template("data", device)) })).To(Succeed())
		record := awaitMove(ctx, ns, "device")
		Expect(record.UID).To(Equal(before.UID))
		Expect(changed(ctx, ns, func(vm *virtv1.VirtualMachine) { fixture.Strategy(virtv1.RunStrategyAlways)(vm) })).To(Succeed())
		vmi := suite.RunningVMI(ctx, ns, "web")
		Expect(vmi.Spec.Volumes).To(ContainElement(HaveField("VolumeSource.DataVolume", HaveValue(HaveField("Name", "device")))))
		Expect(suite.Shell(ctx, vmi, "set -e; mkdir -p /mnt; mount /dev/vdb /mnt; cat /mnt/file; echo newer > /mnt/file; umount /mnt; sync")).To(Equal("kept"))

		By("looking at the old claim")
		Expect(claimOf(ctx, ns, "data").UID).To(Equal(before.UID))
		suite.Create(ctx, fixture.VM(ns, "old", fixture.ContainerDisk(suite.TinyImage()), fixture.Claim("data", "data")))
		Expect(suite.Shell(ctx, suite.RunningVMI(ctx, ns, "old"), "set -e; mkdir -p /mnt; mount -o ro /dev/vdb /mnt; cat /mnt/file")).To(Equal("kept"))

		By("moving the device to a file, onto a claim of no DataVolume, with one change that starts it, too")
		Expect(changed(ctx, ns, func(vm *virtv1.VirtualMachine) { fixture.Strategy(virtv1.RunStrategyHalted)(vm) })).To(Succeed())
		suite.VMStatus(ctx, ns, "web", virtv1.VirtualMachineStatusStopped)
		suite.Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "file"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: before.Spec.AccessModes, VolumeMode: new(corev1.PersistentVolumeFilesystem), StorageClassName: &class.Name,
				// The device's 128Mi, and what a file system needs beside it.
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("192Mi")}},
			},
		})
		Expect(changed(ctx, ns, func(vm *virtv1.VirtualMachine) {
			moveTo(vm, fixture.Claim("data", "file"))
			fixture.Strategy(virtv1.RunStrategyAlways)(vm)
		})).To(Succeed())
		Expect(suite.Shell(ctx, suite.RunningVMI(ctx, ns, "web"), "set -e; mkdir -p /mnt; mount /dev/vdb /mnt; cat /mnt/file; umount /mnt")).To(Equal("newer"))
		awaitMove(ctx, ns, "file")
	}, SpecTimeout(25*time.Minute))
})

// changed changes VM web of the namespace, and returns what the API server says.
func changed(ctx context.Context, namespace string, change func(*virtv1.VirtualMachine)) error {
	vm := &virtv1.VirtualMachine{}
	if err := suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web"}, vm); err != nil {
		return err
	}
	before := vm.DeepCopy()
	change(vm)
	return suite.World.Client.Patch(ctx, vm, client.MergeFrom(before))
}

// moveTo gives vm the disk that option adds in the place of its last one.
func moveTo(vm *virtv1.VirtualMachine, option fixture.VMOption) {
	spec := &vm.Spec.Template.Spec
	vm.Spec.DataVolumeTemplates = nil
	spec.Volumes = spec.Volumes[:len(spec.Volumes)-1]
	spec.Domain.Devices.Disks = spec.Domain.Devices.Disks[:len(spec.Domain.Devices.Disks)-1]
	option(vm)
}

// awaitMove waits until VM web has nothing left to copy, and returns what the claim says of the copy.
func awaitMove(ctx context.Context, namespace, claim string) *volumemigration.Record {
	GinkgoHelper()
	vm := &virtv1.VirtualMachine{}
	vm.Namespace, vm.Name = namespace, "web"
	Expect(suite.World.Await(ctx, GinkgoWriter, vm, suite.BoundImport, func(object client.Object) (string, bool, error) {
		found := object.(*virtv1.VirtualMachine)
		words := string(found.Status.PrintableStatus)
		for _, c := range found.Status.Conditions {
			words += fmt.Sprintf("; %s %s: %s", c.Type, c.Reason, c.Message)
		}
		return words, !volumemigration.Pending(found), nil
	})).To(Succeed())
	record := volumemigration.RecordOf(claimOf(ctx, namespace, claim).Annotations)
	Expect(record).NotTo(BeNil())
	return record
}

// claimOf reads a claim.
func claimOf(ctx context.Context, namespace, name string) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	claim := &corev1.PersistentVolumeClaim{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, claim)).To(Succeed())
	return claim
}
