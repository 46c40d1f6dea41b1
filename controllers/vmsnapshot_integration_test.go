//go:build integration

package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture"
)

const snapping = "csi.example.com"

// snappedClasses makes the classes of a driver that takes snapshots, which all tests share.
func (c *cluster) snappedClasses(t *testing.T) {
	t.Helper()
	for _, class := range []client.Object{
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "snapped"}, Provisioner: snapping},
		&csiv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "snapped"}, Driver: snapping, DeletionPolicy: csiv1.VolumeSnapshotContentDelete},
	} {
		if err := c.Create(t.Context(), class); !apierrors.IsAlreadyExists(err) {
			must(t, err)
		}
	}
}

// snapped makes a claim with a volume of a driver that takes snapshots.
func (c *cluster) snapped(t *testing.T, namespace, name string) {
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name}}
	volume.Spec.Capacity, volume.Spec.AccessModes, volume.Spec.StorageClassName = size, modes, "snapped"
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: snapping, VolumeHandle: volume.Name}
	must(t, c.Create(t.Context(), volume))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	claim.Spec.StorageClassName, claim.Spec.AccessModes, claim.Spec.VolumeName = new("snapped"), modes, volume.Name
	claim.Spec.Resources.Requests = size
	must(t, c.Create(t.Context(), claim))
	claim.Status.Phase = corev1.ClaimBound
	must(t, c.Status().Update(t.Context(), claim))
}

// play is the driver: what it is asked for is taken, and claims that are made from that get volumes.
func (c *cluster) play(t *testing.T, namespace string) error {
	t.Helper()
	contents, claims := &csiv1.VolumeSnapshotContentList{}, &corev1.PersistentVolumeClaimList{}
	must(t, c.List(t.Context(), contents))
	must(t, c.List(t.Context(), claims, client.InNamespace(namespace)))
	for i := range contents.Items {
		content := &contents.Items[i]
		if content.Spec.VolumeSnapshotRef.Namespace != namespace || content.Status != nil {
			continue
		}
		content.Status = &csiv1.VolumeSnapshotContentStatus{
			SnapshotHandle: &content.Name, CreationTime: new(time.Now().UnixNano()), ReadyToUse: new(true), RestoreSize: new(int64(1 << 30)),
		}
		if err := c.Status().Update(t.Context(), content); err != nil {
			return err
		}
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Spec.DataSource == nil || claim.Status.Phase == corev1.ClaimBound {
			continue
		}
		claim.Status.Phase = corev1.ClaimBound
		if err := c.Status().Update(t.Context(), claim); err != nil {
			return err
		}
	}
	return nil
}

// All that Slipway runs together brings a VM back; the test is the storage driver.
func TestAVMIsBroughtBackFromItsSnapshot(t *testing.T) {
	c := start(t)
	g := gomega.NewWithT(t)
	namespace := c.namespace(t)
	c.snappedClasses(t)
	for _, claim := range []string{"root", "data"} {
		c.snapped(t, namespace, claim)
	}
	vm := newVM(namespace, "web")
	for _, option := range []fixture.VMOption{
		fixture.Strategy(virtv1.RunStrategyHalted), fixture.Template("system", fixture.DataVolume(namespace, "root", "1Gi")), fixture.Claim("data", "data"),
	} {
		option(vm)
	}
	must(t, c.Create(t.Context(), vm))
	of := corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}
	snapshot := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "before"}}
	snapshot.Spec.Source = of
	must(t, c.Create(t.Context(), snapshot))
	g.Eventually(func() (bool, error) {
		if err := c.play(t, namespace); err != nil {
			return false, err
		}
		err := c.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot)
		return snapshot.Status != nil && snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse, err
	}, bound, "100ms").Should(gomega.BeTrue(), "the snapshot is ready: %+v", snapshot)

	must(t, c.mergePatch(t, vm, map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"hostname": "changed"}}}}))
	restore := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "back"}}
	restore.Spec.Target, restore.Spec.VirtualMachineSnapshotName = of, "before"
	must(t, c.Create(t.Context(), restore))
	other := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "again"}, Spec: restore.Spec}
	if err := c.Create(t.Context(), other); err == nil || !strings.Contains(err.Error(), `VirtualMachineRestore "back" in progress`) {
		t.Errorf("a second restore: %v", err)
	}
	g.Eventually(func() (bool, error) {
		if err := c.play(t, namespace); err != nil {
			return false, err
		}
		err := c.Get(t.Context(), client.ObjectKeyFromObject(restore), restore)
		return restore.Status != nil && restore.Status.Complete != nil && *restore.Status.Complete, err
	}, bound, "100ms").Should(gomega.BeTrue(), "the restore is complete: %+v", restore)

	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
	name := fmt.Sprintf("restore-%s-system", restore.UID)
	if spec := vm.Spec.Template.Spec; spec.Hostname != "" || spec.Volumes[1].DataVolume.Name != name || vm.Status.RestoreInProgress != nil {
		t.Errorf("the VM is %+v", vm)
	}
	g.Eventually(func() (cdiv1.DataVolumePhase, error) {
		dv := &cdiv1.DataVolume{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, dv)
		return dv.Status.Phase, err
	}, bound, "100ms").Should(gomega.Equal(cdiv1.Succeeded), "its DataVolume has taken over the claim")
	must(t, c.mergePatch(t, vm, map[string]any{"spec": map[string]any{"runStrategy": "Always"}}))
	g.Eventually(func() error {
		return c.Get(t.Context(), client.ObjectKeyFromObject(vm), &virtv1.VirtualMachineInstance{})
	}, bound, "100ms").Should(gomega.Succeed(), "it starts")
}

// What cannot be done is refused with its path.
func TestABadSnapshotOrRestoreIsRefused(t *testing.T) {
	c := start(t)
	namespace := c.namespace(t)
	snapshot := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s"}}
	snapshot.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachinePool", Name: "web"}
	restore := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "r"}}
	restore.Spec.Target = corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}
	restore.Spec.VirtualMachineSnapshotName, restore.Spec.VolumeRestorePolicy = "s", new(snapshotv1.VolumeRestorePolicy("Merge"))
	for object, want := range map[client.Object]string{
		snapshot: `spec.source.kind: Invalid value: "VirtualMachinePool": invalid kind`,
		restore:  `spec.volumeRestorePolicy: Unsupported value: "Merge"`,
	} {
		if err := c.Create(t.Context(), object); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
