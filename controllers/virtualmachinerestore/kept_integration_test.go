//go:build integration

package virtualmachinerestore

import (
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/keep"
)

// changeContent changes what the snapshot holds.
func (w *world) changeContent(change func(*snapshotv1.VirtualMachineSnapshotContentSpec)) {
	w.t.Helper()
	content := &snapshotv1.VirtualMachineSnapshotContent{}
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "content"}, content))
	change(&content.Spec)
	w.must(w.Update(w.t.Context(), content))
}

// The new VM's volumes are nobody's from their beginning, so that no deletion of the VM is too early.
func toAKeeper(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.changeContent(func(spec *snapshotv1.VirtualMachineSnapshotContentSpec) {
		spec.Source.VirtualMachine.Annotations = map[string]string{keep.AnnotationVolumes: "true"}
	})
	w.ask("copy")
	w.settle()
	vm, root, data := w.vm("copy"), w.made()["of-root"], w.made()["of-data"]
	if vm == nil || root == nil || data == nil || !completed(w.restore()) {
		t.Fatalf("the restore is %+v", status(w.restore()))
	}
	for _, volume := range []client.Object{w.dataVolume(root.Name), data} {
		if len(volume.GetOwnerReferences()) > 0 || volume.GetLabels()[keep.LabelFor] != string(vm.UID) {
			t.Errorf("%s has the owners %+v and the labels %v", volume.GetName(), volume.GetOwnerReferences(), volume.GetLabels())
		}
	}
}

// The claims of a clone's VM get their volumes when it starts. Until then they hold the snapshot, should the clone be deleted.
func ofAClone(t *testing.T, c client.WithWatch) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "csi.example.com", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
	w := newWorld(t, c)
	w.must(c.Create(t.Context(), class))
	w.changeContent(func(spec *snapshotv1.VirtualMachineSnapshotContentSpec) {
		for i := range spec.VolumeBackups {
			spec.VolumeBackups[i].PersistentVolumeClaim.Spec.StorageClassName = &class.Name
		}
	})
	snapshot := &snapshotv1.VirtualMachineSnapshot{}
	key := client.ObjectKey{Namespace: w.namespace, Name: "s"}
	w.must(c.Get(t.Context(), key, snapshot))
	clone := &clonev1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "1-2-3"}}
	snapshot.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(clone, clonev1.VirtualMachineCloneKind)}
	w.must(c.Update(t.Context(), snapshot))
	w.ask("copy")
	w.must(w.pass(c))
	if w.vm("copy") == nil {
		t.Fatalf("the restore is %+v", status(w.restore()))
	}
	w.must(c.Get(t.Context(), key, snapshot))
	for _, claim := range w.made() {
		holds := func(owner metav1.OwnerReference) bool {
			return owner.UID == claim.UID && owner.Kind == "PersistentVolumeClaim"
		}
		if !slices.ContainsFunc(snapshot.OwnerReferences, holds) {
			t.Errorf("claim %s is not among the owners %+v", claim.Name, snapshot.OwnerReferences)
		}
	}
	if len(snapshot.OwnerReferences) != 3 {
		t.Errorf("the owners are %+v", snapshot.OwnerReferences)
	}
}
