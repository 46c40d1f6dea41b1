//go:build e2e

package storage

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	vmsnapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
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
		snapshot := suite.Snapshot(ctx, ns, "before", "web")
		Expect(snapshot.Status.Phase).To(Equal(vmsnapshotv1.Succeeded))
		Expect(snapshot.Status.SourceIndications).To(ConsistOf(
			HaveField("Indication", vmsnapshotv1.VMSnapshotOnlineSnapshotIndication), HaveField("Indication", vmsnapshotv1.VMSnapshotGuestAgentIndication)))
		Expect(snapshot.Status.SnapshotVolumes.IncludedVolumes).To(Equal([]string{"data"}))
		suite.Shell(ctx, vmi, "set -e; mount /dev/vdb /mnt; echo after > /mnt/file; umount /mnt; sync")

		// restored has the VM be what the snapshot has, and waits until it stands still as that.
		restored := func(name string, policy *vmsnapshotv1.VolumeRestorePolicy) (*virtv1.VirtualMachine, vmsnapshotv1.VolumeRestore) {
			GinkgoHelper()
			restore := suite.Restore(ns, name, "web", "before")
			restore.Spec.TargetReadinessPolicy, restore.Spec.VolumeRestorePolicy = new(vmsnapshotv1.VirtualMachineRestoreStopTarget), policy
			suite.Create(ctx, restore)
			restore = suite.Restored(ctx, restore)
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

	It("has a restored disk bound before it starts, where its DataVolume asks for that", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "web", fixture.Strategy(virtv1.RunStrategyHalted), fixture.Template("data", fixture.DataVolume(ns, "data", "64Mi")))
		vm.Spec.DataVolumeTemplates[0].Annotations = map[string]string{names.AnnotationBind: "true"}
		suite.Create(ctx, vm)
		suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
		suite.Snapshot(ctx, ns, "before", "web")
		restore := suite.Restore(ns, "bound", "web", "before")
		suite.Create(ctx, restore)
		name := suite.Restored(ctx, restore).Status.Restores[0].PersistentVolumeClaimName
		Eventually(ctx, func(g Gomega) {
			claim, pods := &corev1.PersistentVolumeClaim{}, &corev1.PodList{}
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, claim)).To(Succeed())
			g.Expect(claim.Status.Phase).To(Equal(corev1.ClaimBound))
			g.Expect(suite.World.Client.List(ctx, pods, client.InNamespace(ns))).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty(), "the pod by which it was bound goes")
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
	}, SpecTimeout(15*time.Minute))

	It("leaves disks that were restored to be nobody's when it goes", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		address, content := scattered("nobodys", 1)
		vm := fixture.VM(ns, "web", fixture.Strategy(virtv1.RunStrategyHalted),
			fixture.Template("data", fixture.DataVolume(ns, "data", "64Mi", fixture.HTTP(address))))
		vm.Spec.DataVolumeTemplates[0].Annotations = map[string]string{names.AnnotationBind: "true"} // no guest does it
		suite.Create(ctx, vm)
		own := suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
		suite.Snapshot(ctx, ns, "before", "web")

		By("restoring it, which takes its own disk away")
		restore := suite.Restore(ns, "nobodys", "web", "before")
		restore.Spec.VolumeOwnershipPolicy = new(vmsnapshotv1.VolumeOwnershipPolicyNone)
		suite.Create(ctx, restore)
		restore = suite.Restored(ctx, restore)
		Expect(restore.Status.DeletedDataVolumes).To(Equal([]string{"data"}))
		Expect(restore.Status.Restores).To(HaveLen(1))
		Expect(restore.Status.Restores[0].DataVolumeName).To(BeNil())
		key := client.ObjectKey{Namespace: ns, Name: restore.Status.Restores[0].PersistentVolumeClaimName}
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)).To(Succeed())
		Expect(vm.Spec.DataVolumeTemplates).To(BeEmpty())
		Expect(vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName).To(Equal(key.Name))
		Expect(suite.World.Gone(ctx, GinkgoWriter, own, suite.BoundEnd)).To(Succeed())
		made := &corev1.PersistentVolumeClaim{}
		Expect(suite.World.Client.Get(ctx, key, made)).To(Succeed())

		By("deleting it, with which the restore goes")
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		for _, gone := range []client.Object{vm, restore} {
			Expect(suite.World.Gone(ctx, GinkgoWriter, gone, suite.BoundEnd)).To(Succeed())
		}
		claim := &corev1.PersistentVolumeClaim{}
		Expect(suite.World.Client.Get(ctx, key, claim)).To(Succeed())
		Expect(claim.UID).To(Equal(made.UID))
		Expect(claim.DeletionTimestamp).To(BeNil())
		Expect(claim.OwnerReferences).To(BeEmpty())

		By("using the disk by another VM, whose firmware finds no system on it")
		suite.Create(ctx, fixture.VM(ns, "other", fixture.Claim("data", key.Name)))
		suite.VMStatus(ctx, ns, "other", virtv1.VirtualMachineStatusRunning)
		if suite.World.Existing {
			return // its disk is elsewhere
		}
		Expect(suite.World.Client.Get(ctx, key, claim)).To(Succeed())
		disk, err := os.Open(filepath.Join(suite.World.Local.PoolPath, claim.Spec.VolumeName, names.DiskFile))
		Expect(err).NotTo(HaveOccurred())
		defer disk.Close()
		has := make([]byte, len(content))
		_, err = io.ReadFull(disk, has)
		Expect(err).NotTo(HaveOccurred())
		Expect(bytes.Equal(has, content)).To(BeTrue(), "the disk has what it had when the snapshot was taken")
	}, SpecTimeout(20*time.Minute))
})
