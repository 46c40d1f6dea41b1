package snapshot_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/controllers/admission/snapshot"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestASnapshotIsOfAVirtualMachine(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*snapshotv1.VirtualMachineSnapshotSpec)
		want   string
	}{
		"a VM":          {func(*snapshotv1.VirtualMachineSnapshotSpec) {}, ""},
		"no group":      {func(s *snapshotv1.VirtualMachineSnapshotSpec) { s.Source.APIGroup = nil }, "spec.source.apiGroup: Required value: missing apiGroup"},
		"another group": {func(s *snapshotv1.VirtualMachineSnapshotSpec) { s.Source.APIGroup = new("apps") }, "spec.source.apiGroup: Invalid value: \"apps\": invalid apiGroup"},
		"another kind":  {func(s *snapshotv1.VirtualMachineSnapshotSpec) { s.Source.Kind = "Deployment" }, "spec.source.kind: Invalid value: \"Deployment\": invalid kind"},
		"no name":       {func(s *snapshotv1.VirtualMachineSnapshotSpec) { s.Source.Name = "" }, "spec.source.name: Required value"},
		"time that is past": {func(s *snapshotv1.VirtualMachineSnapshotSpec) {
			s.FailureDeadline = &metav1.Duration{Duration: -time.Second}
		}, "spec.failureDeadline"},
	} {
		t.Run(name, func(t *testing.T) {
			object := &snapshotv1.VirtualMachineSnapshot{Spec: snapshotv1.VirtualMachineSnapshotSpec{
				Source: corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"},
			}}
			old := object.DeepCopy()
			c.change(&object.Spec)
			err := snapshot.Validate(object).ToAggregate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if errs := snapshot.ValidateUpdate(old, object); (len(errs) == 0) != (c.want == "") {
				t.Errorf("the change was judged %v", errs)
			}
		})
	}
}

func TestALockedVMKeepsItsDisksAndState(t *testing.T) {
	for name, c := range map[string]struct {
		lock   func(*virtv1.VirtualMachineStatus)
		change func(*virtv1.VirtualMachine)
		want   string
	}{
		"a disk, while a snapshot is taken":       {taken, fixture.EmptyDisk("new", "1Gi"), `Cannot update VM disks or volumes until snapshot "s" completes`},
		"a start, while a snapshot is taken":      {taken, fixture.Strategy(virtv1.RunStrategyAlways), `Cannot update VM running state until snapshot "s" completes`},
		"its memory, while a snapshot is taken":   {taken, fixture.Memory("1Gi"), ""},
		"a start, while it is restored":           {restored, fixture.Strategy(virtv1.RunStrategyAlways), `Cannot start VM until restore "r" completes`},
		"its disks, by what restores it":          {restored, fixture.EmptyDisk("new", "1Gi"), ""},
		"a start, when nothing is done with it":   {func(*virtv1.VirtualMachineStatus) {}, fixture.Strategy(virtv1.RunStrategyAlways), ""},
		"the old way to say that it stays halted": {restored, func(vm *virtv1.VirtualMachine) { vm.Spec.RunStrategy, vm.Spec.Running = nil, new(false) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			old := fixture.VM("shop", "web", fixture.Strategy(virtv1.RunStrategyHalted))
			c.lock(&old.Status)
			vm := old.DeepCopy()
			c.change(vm)
			err := snapshot.ValidateMachine(old, vm).ToAggregate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func taken(status *virtv1.VirtualMachineStatus)    { status.SnapshotInProgress = new("s") }
func restored(status *virtv1.VirtualMachineStatus) { status.RestoreInProgress = new("r") }
