//go:build e2e

package storage

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	vmsnapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a virtual machine", func() {
	It("is what it was when a snapshot of it was taken, after it is restored", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "web", fixture.ContainerDisk(suite.TinyImage()), fixture.Template("data", fixture.DataVolume(ns, "data", "64Mi")))
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, "web")
		suite.Shell(ctx, vmi, "set -e; mkfs.ext2 /dev/vdb; mkdir -p /mnt; mount /dev/vdb /mnt; echo before > /mnt/file; umount /mnt; sync")

		By("taking a snapshot while it runs")
		of := corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}
		snapshot := &vmsnapshotv1.VirtualMachineSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "before"}, Spec: vmsnapshotv1.VirtualMachineSnapshotSpec{Source: of},
		}
		suite.Create(ctx, snapshot)
		err := suite.World.Await(ctx, GinkgoWriter, snapshot.DeepCopy(), suite.BoundImport, func(object client.Object) (string, bool, error) {
			object.(*vmsnapshotv1.VirtualMachineSnapshot).DeepCopyInto(snapshot)
			status := ptr.Deref(snapshot.Status, vmsnapshotv1.VirtualMachineSnapshotStatus{})
			return fmt.Sprintf("%s %v", status.Phase, status.Conditions), ptr.Deref(status.ReadyToUse, false), nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(snapshot.Status.Phase).To(Equal(vmsnapshotv1.Succeeded))
		Expect(snapshot.Status.SourceIndications).To(ConsistOf(
			HaveField("Indication", vmsnapshotv1.VMSnapshotOnlineSnapshotIndication), HaveField("Indication", vmsnapshotv1.VMSnapshotGuestAgentIndication)))
		Expect(snapshot.Status.SnapshotVolumes.IncludedVolumes).To(Equal([]string{"data"}))
		suite.Shell(ctx, vmi, "set -e; mount /dev/vdb /mnt; echo after > /mnt/file; umount /mnt; sync")

		// restored has the VM be what the snapshot has, and waits until it stands still as that.
		restored := func(name string, names *vmsnapshotv1.VolumeRestorePolicy) (*virtv1.VirtualMachine, vmsnapshotv1.VolumeRestore) {
			GinkgoHelper()
			restore := &vmsnapshotv1.VirtualMachineRestore{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
				Spec: vmsnapshotv1.VirtualMachineRestoreSpec{
					Target: of, VirtualMachineSnapshotName: "before", TargetReadinessPolicy: new(vmsnapshotv1.VirtualMachineRestoreStopTarget), VolumeRestorePolicy: names,
				},
			}
			suite.Create(ctx, restore)
			err := suite.World.Await(ctx, GinkgoWriter, restore.DeepCopy(), suite.BoundImport, func(object client.Object) (string, bool, error) {
				object.(*vmsnapshotv1.VirtualMachineRestore).DeepCopyInto(restore)
				status := ptr.Deref(restore.Status, vmsnapshotv1.VirtualMachineRestoreStatus{})
				return fmt.Sprint(status.Conditions), ptr.Deref(status.Complete, false), nil
			})
			Expect(err).NotTo(HaveOccurred())
			stopped := suite.VMStatus(ctx, ns, "web", virtv1.VirtualMachineStatusStopped)
			Expect(stopped.Status.RestoreInProgress).To(BeNil(), "a restore is complete once it has let go of its VM")
			Expect(stopped.Spec.Template.Spec.Volumes[1].DataVolume.Name).To(Equal(restore.Status.Restores[0].PersistentVolumeClaimName))
			return stopped, restore.Status.Restores[0]
		}
		claim := &corev1.PersistentVolumeClaim{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "data"}, claim)).To(Succeed())
		was := claim.UID

		By("restoring it in place, for which it is stopped")
		stopped, volume := restored("in-place", new(vmsnapshotv1.VolumeRestorePolicyInPlace))
		Expect(volume.PersistentVolumeClaimName).To(Equal("data"))
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "data"}, claim)).To(Succeed())
		Expect(claim.UID).NotTo(Equal(was))

		By("starting it")
		start := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Always"}}`))
		Expect(suite.World.Client.Patch(ctx, stopped, start)).To(Succeed())
		vmi = suite.RunningVMI(ctx, ns, "web")
		Expect(suite.Shell(ctx, vmi, "mkdir -p /mnt; mount /dev/vdb /mnt; cat /mnt/file; umount /mnt")).To(Equal("before"))
		suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)

		By("restoring it to a new claim, after which the old one goes")
		stopped, volume = restored("to-another", nil)
		Expect(volume.PersistentVolumeClaimName).To(HavePrefix("restore-"))
		old := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, old, suite.BoundEnd)).To(Succeed())

		By("starting it again")
		Expect(suite.World.Client.Patch(ctx, stopped, start)).To(Succeed())
		vmi = suite.RunningVMI(ctx, ns, "web")
		Expect(suite.Shell(ctx, vmi, "mkdir -p /mnt; mount /dev/vdb /mnt; cat /mnt/file; umount /mnt")).To(Equal("before"))
		suite.DataVolume(ctx, ns, volume.PersistentVolumeClaimName, cdiv1.Succeeded)
	}, SpecTimeout(25*time.Minute))
})
