//go:build e2e

package storage

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

// openBackups has VMs with the label backups of this value be ones that can be backed up, until the spec ends.
func openBackups(ctx context.Context, value string) {
	GinkgoHelper()
	patch := func(ctx context.Context, gates, selectors string) {
		kv := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.KubeVirtName}}
		change := fmt.Sprintf(`{"spec":{"configuration":{"developerConfiguration":{"featureGates":%s},"changedBlockTrackingLabelSelectors":%s}}}`, gates, selectors)
		Expect(suite.World.Client.Patch(ctx, kv, client.RawPatch(types.MergePatchType, []byte(change)))).To(Succeed())
	}
	patch(ctx, `["IncrementalBackup"]`, fmt.Sprintf(`{"virtualMachineLabelSelector":{"matchLabels":{"backups":%q}}}`, value))
	DeferCleanup(func(ctx context.Context) { patch(ctx, "null", "null") })
}

// backsUp makes a full and an incremental backup of the disk data of the VM plugged, and puts them together.
func backsUp(ctx context.Context, ns string, vmi *virtv1.VirtualMachineInstance) {
	GinkgoHelper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "backups"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("256Mi")}
	tracker := &backupv1.VirtualMachineBackupTracker{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "daily"}}
	tracker.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "plugged"}
	suite.Create(ctx, claim, tracker)

	suite.Shell(ctx, vmi, "dd if=/dev/urandom of=/dev/vdb bs=1M count=1 conv=notrunc 2>/dev/null; sync")
	first := backedUp(ctx, ns, "first")
	Expect(first.Status.Type).To(Equal(backupv1.Full))
	Expect(first.Status.IncludedVolumes).To(ConsistOf(backupv1.BackupVolumeInfo{VolumeName: "data", DiskTarget: "vdb"}))
	suite.Shell(ctx, vmi, "dd if=/dev/urandom of=/dev/vdb bs=64k seek=3 count=1 conv=notrunc 2>/dev/null; sync")
	sum := strings.Fields(suite.Shell(ctx, vmi, "md5sum /dev/vdb"))[0]
	second := backedUp(ctx, ns, "second")
	Expect(second.Status.Type).To(Equal(backupv1.Incremental))
	Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(tracker), tracker)).To(Succeed())
	Expect(tracker.Status.LatestCheckpoint.Name).To(Equal(*second.Status.CheckpointName))

	full := fmt.Sprintf("/dumps/plugged/%s/first-data.qcow2", *first.Status.CheckpointName)
	part := fmt.Sprintf("/dumps/plugged/%s/second-data.qcow2", *second.Status.CheckpointName)
	script := fmt.Sprintf(`set -e; qemu-img rebase -u -f qcow2 -F qcow2 -b %s %s; qemu-img convert -O raw %s /dumps/whole; md5sum /dumps/whole >/dev/termination-log`, full, part, part)
	Expect(fromClaim(ctx, ns, "backups", vmi.Status.LauncherContainerImageVersion, "/bin/sh", "-c", script)).To(HavePrefix(sum))
}

// backedUp makes a backup by the tracker, and waits until it is whole and lets go of its claim.
func backedUp(ctx context.Context, ns, name string) *backupv1.VirtualMachineBackup {
	GinkgoHelper()
	b := &backupv1.VirtualMachineBackup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	b.Spec = backupv1.VirtualMachineBackupSpec{
		Source:  corev1.TypedLocalObjectReference{APIGroup: new("backup.kubevirt.io"), Kind: "VirtualMachineBackupTracker", Name: "daily"},
		PvcName: new("backups"),
	}
	suite.Create(ctx, b)
	err := suite.World.Await(ctx, GinkgoWriter, b, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		obj.(*backupv1.VirtualMachineBackup).DeepCopyInto(b)
		if b.Status == nil {
			return "no status", false, nil
		}
		whole := meta.IsStatusConditionTrue(b.Status.Conditions, string(backupv1.ConditionComplete))
		return fmt.Sprintf("%+v", b.Status.Conditions), whole && len(b.Finalizers) == 0, nil
	})
	Expect(err).NotTo(HaveOccurred())
	return b
}
