//go:build e2e

package storage

import (
	"context"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a snapshot", func() {
	DescribeTable("of a disk in use is restored larger after its source is gone, and goes with its data",
		func(ctx context.Context, mode corev1.PersistentVolumeMode, options ...fixture.DataVolumeOption) {
			ns := suite.Namespace(ctx)
			dv := fixture.DataVolume(ns, "data", "64Mi", options...)
			suite.Create(ctx, dv)
			suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
			writer := fixture.VM(ns, "writer", fixture.ContainerDisk(suite.TinyImage()), fixture.Claim("data", "data"))
			suite.Create(ctx, writer)
			vmi := suite.RunningVMI(ctx, ns, "writer")
			suite.Shell(ctx, vmi, "set -e; mkfs.ext2 /dev/vdb; mkdir -p /mnt; mount /dev/vdb /mnt; echo before > /mnt/file; umount /mnt; sync")

			snapshot := snapshotOf(ns, "kept", "data")
			suite.Create(ctx, snapshot)
			ready(ctx, snapshot)
			Expect(snapshot.Status.CreationTime).NotTo(BeNil())
			suite.Shell(ctx, vmi, "set -e; mount /dev/vdb /mnt; echo after > /mnt/file; umount /mnt; sync")
			for _, gone := range []client.Object{writer, dv} {
				Expect(suite.World.Client.Delete(ctx, gone)).To(Succeed())
				Expect(suite.World.Gone(ctx, GinkgoWriter, gone, suite.BoundEnd)).To(Succeed())
			}
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"}}
			Expect(suite.World.Gone(ctx, GinkgoWriter, claim, suite.BoundEnd)).To(Succeed())

			suite.Create(ctx, restoreOf(ns, "restored", "kept", "128Mi", mode))
			suite.Create(ctx, fixture.VM(ns, "reader", fixture.ContainerDisk(suite.TinyImage()), fixture.Claim("data", "restored")))
			reader := suite.RunningVMI(ctx, ns, "reader")
			Expect(suite.Shell(ctx, reader, "mkdir -p /mnt; mount /dev/vdb /mnt; cat /mnt/file; umount /mnt")).To(Equal("before"))

			content := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: *snapshot.Status.BoundVolumeSnapshotContentName}}
			Expect(suite.World.Client.Delete(ctx, snapshot)).To(Succeed())
			Expect(suite.World.Gone(ctx, GinkgoWriter, snapshot, suite.BoundEnd)).To(Succeed())
			Expect(suite.World.Gone(ctx, GinkgoWriter, content, suite.BoundEnd)).To(Succeed())
		},
		Entry("on a Filesystem volume", SpecTimeout(30*time.Minute), corev1.PersistentVolumeFilesystem),
		Entry("on a Block volume", suite.Thorough, SpecTimeout(30*time.Minute), corev1.PersistentVolumeBlock, fixture.Block()),
	)

	It("waits for its claim, says so, and is taken after virt-handler starts again", Label("alone"), func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		snapshot := snapshotOf(ns, "early", "data")
		suite.Create(ctx, snapshot)
		says(ctx, snapshot, "claim data does not exist")
		handlers := []client.DeleteAllOfOption{client.InNamespace(names.InstallNamespace), client.MatchingLabels{"kubevirt.io": "virt-handler"}}
		suite.Create(ctx, fixture.DataVolume(ns, "data", "64Mi"))
		suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
		Expect(suite.World.Client.DeleteAllOf(ctx, &corev1.Pod{}, handlers...)).To(Succeed())
		ready(ctx, snapshot)
		second := snapshotOf(ns, "second", "data")
		suite.Create(ctx, second)
		ready(ctx, second)
	}, SpecTimeout(25*time.Minute))

	It("stays while a claim is made from it", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "data", "64Mi"))
		suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
		snapshot := snapshotOf(ns, "used", "data")
		suite.Create(ctx, snapshot)
		ready(ctx, snapshot)
		waiting := restoreOf(ns, "waiting", "used", "64Mi", corev1.PersistentVolumeFilesystem) // for a pod that never comes
		suite.Create(ctx, waiting)
		Expect(suite.World.Client.Delete(ctx, snapshot)).To(Succeed())
		told(ctx, ns, "SnapshotDeletePending", "Claim waiting is made from the snapshot")
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(snapshot), snapshot)).To(Succeed())
		Expect(suite.World.Client.Delete(ctx, waiting)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, snapshot, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(20*time.Minute))
})

var _ = Describe("a DataVolume of a snapshot", func() {
	It("has what its source had then, on a class that waits for a consumer, with the source's size", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "data", "256Mi", fixture.HTTP(root+"/disk.qcow2")))
		suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
		early := fixture.DataVolume(ns, "restored", "256Mi", fixture.SnapshotOf(ns, "kept"))
		early.Spec.Storage.Resources.Requests = nil
		suite.Create(ctx, early)
		suite.DataVolumeUntil(ctx, ns, "restored", func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == cdiv1.Pending })
		snapshot := snapshotOf(ns, "kept", "data")
		suite.Create(ctx, snapshot)
		ready(ctx, snapshot)
		suite.DataVolume(ctx, ns, "restored", cdiv1.Succeeded)
		claim := &corev1.PersistentVolumeClaim{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "restored"}, claim)).To(Succeed())
		Expect(claim.Spec.Resources.Requests.Storage().Cmp(*snapshot.Status.RestoreSize)).To(BeZero())
		suite.Create(ctx, fixture.VM(ns, "guest", fixture.Claim("root", "restored")))
		Expect(suite.Shell(ctx, suite.RunningVMI(ctx, ns, "guest"), "uname -s")).To(Equal("Linux"))
	}, SpecTimeout(20*time.Minute))
})

func snapshotOf(namespace, name, claim string) *snapshotv1.VolumeSnapshot {
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
	}
}

func restoreOf(namespace, name, snapshot, size string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode, StorageClassName: new(env.StorageClass),
			Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
			DataSource: &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: snapshot},
		},
	}
}

// ready waits until a snapshot is ready to use, and reads it.
func ready(ctx context.Context, snapshot *snapshotv1.VolumeSnapshot) {
	GinkgoHelper()
	until(ctx, snapshot, func(s *snapshotv1.VolumeSnapshotStatus) bool { return ptr.Deref(s.ReadyToUse, false) })
}

// says waits until the error of a snapshot says something.
func says(ctx context.Context, snapshot *snapshotv1.VolumeSnapshot, want string) {
	GinkgoHelper()
	until(ctx, snapshot, func(s *snapshotv1.VolumeSnapshotStatus) bool {
		return s.Error != nil && strings.Contains(ptr.Deref(s.Error.Message, ""), want)
	})
	told(ctx, snapshot.Namespace, "SnapshotContentCreationFailed", want)
}

func until(ctx context.Context, snapshot *snapshotv1.VolumeSnapshot, done func(*snapshotv1.VolumeSnapshotStatus) bool) {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, snapshot.DeepCopy(), suite.BoundImport, func(obj client.Object) (string, bool, error) {
		found := obj.(*snapshotv1.VolumeSnapshot)
		found.DeepCopyInto(snapshot)
		if found.Status == nil {
			return "without status", false, nil
		}
		words := "not ready"
		if ptr.Deref(found.Status.ReadyToUse, false) {
			words = "ready"
		}
		if found.Status.Error != nil {
			words += ": " + ptr.Deref(found.Status.Error.Message, "")
		}
		return words, done(found.Status), nil
	})
	Expect(err).NotTo(HaveOccurred())
}

// told waits for an event.
func told(ctx context.Context, namespace, reason, text string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var events corev1.EventList
		g.Expect(suite.World.Client.List(ctx, &events, client.InNamespace(namespace))).To(Succeed())
		var found []string
		for _, event := range events.Items {
			found = append(found, event.Reason+": "+event.Message)
		}
		g.Expect(found).To(ContainElement(And(HavePrefix(reason+": "), ContainSubstring(text))))
	}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
}
