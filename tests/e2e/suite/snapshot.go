package suite

import (
	"context"
	"fmt"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// machine names a VM as snapshots and restores do.
func machine(name string) corev1.TypedLocalObjectReference {
	return corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: name}
}

// Snapshot takes a snapshot of a VM, and returns it once it is ready to use.
func Snapshot(ctx context.Context, namespace, name, vm string) *snapshotv1.VirtualMachineSnapshot {
	ginkgo.GinkgoHelper()
	snapshot := &snapshotv1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: snapshotv1.VirtualMachineSnapshotSpec{Source: machine(vm)},
	}
	Create(ctx, snapshot)
	err := World.Await(ctx, ginkgo.GinkgoWriter, snapshot, BoundImport, func(object client.Object) (string, bool, error) {
		snapshot = object.(*snapshotv1.VirtualMachineSnapshot)
		status := ptr.Deref(snapshot.Status, snapshotv1.VirtualMachineSnapshotStatus{})
		return fmt.Sprintf("%s %v", status.Phase, status.Conditions), ptr.Deref(status.ReadyToUse, false), nil
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return snapshot
}

// Restore is a restore of a VM from a snapshot, to be changed and created.
func Restore(namespace, name, vm, snapshot string) *snapshotv1.VirtualMachineRestore {
	return &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       snapshotv1.VirtualMachineRestoreSpec{Target: machine(vm), VirtualMachineSnapshotName: snapshot},
	}
}

// Restored waits until a restore is complete, and returns it as it is then.
func Restored(ctx context.Context, restore *snapshotv1.VirtualMachineRestore) *snapshotv1.VirtualMachineRestore {
	ginkgo.GinkgoHelper()
	err := World.Await(ctx, ginkgo.GinkgoWriter, restore, BoundImport, func(object client.Object) (string, bool, error) {
		restore = object.(*snapshotv1.VirtualMachineRestore)
		status := ptr.Deref(restore.Status, snapshotv1.VirtualMachineRestoreStatus{})
		return fmt.Sprint(status.Conditions), ptr.Deref(status.Complete, false), nil
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return restore
}
