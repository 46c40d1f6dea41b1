package virtualmachinesnapshot

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestAStateIsAVolumeOfASnapshot(t *testing.T) {
	w := func(n int) string { return strings.Repeat("w", n) }
	for vm, want := range map[string]string{
		"web": "persistent-state-for-web",
		w(42): "persistent-state-for-" + w(42),
		w(43): "persistent-e807c95a-" + w(43),
		w(53): "-e807c95a-" + w(53),
	} {
		if got := StateVolume(vm); got != want {
			t.Errorf("of %s it is %s, want %s", vm, got, want)
		}
	}
	if got := StateVolume(w(54)); len(got) != len("persistent-state-for-01234567") {
		t.Errorf("of a long name it is %s", got)
	}
	if StateVolume(w(100)) == StateVolume(w(101)) {
		t.Error("two VMs have one name")
	}
}

// The state is known by its label, whatever its volume is named; a disk on a claim with that label is none.
func TestTheStateOfAContent(t *testing.T) {
	vm := fixture.VM("shop", "web", fixture.Claim("data", "data"))
	content := &snapshotv1.VirtualMachineSnapshotContent{}
	content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: vm.Spec}
	of := func(volume string) snapshotv1.VolumeBackup {
		return snapshotv1.VolumeBackup{VolumeName: volume, PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"persistent-state-for": "web"}},
		}}
	}
	content.Spec.VolumeBackups = []snapshotv1.VolumeBackup{of("data")}
	if got := StateOf(content); got != nil {
		t.Errorf("a disk is the state: %+v", got)
	}
	content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, of("tpm"))
	if got := StateOf(content); got == nil || got.VolumeName != "tpm" {
		t.Errorf("got %+v", got)
	}
	snapshot := &snapshotv1.VirtualMachineSnapshot{Status: &snapshotv1.VirtualMachineSnapshotStatus{SnapshotVolumes: &snapshotv1.SnapshotVolumesLists{}}}
	if LeavesState(snapshot, content) {
		t.Error("it is left out")
	}
	snapshot.Status.SnapshotVolumes.ExcludedVolumes = []string{"persistent-state-for-web"}
	if !LeavesState(snapshot, content) {
		t.Error("it is not left out")
	}
}
