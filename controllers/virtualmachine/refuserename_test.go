package virtualmachine

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/internal/rename"
)

func TestOnlyAStoppedVMIsRenamed(t *testing.T) {
	phase := func(phase virtv1.VirtualMachineInstancePhase) *virtv1.VirtualMachineInstance {
		return &virtv1.VirtualMachineInstance{Status: virtv1.VirtualMachineInstanceStatus{Phase: phase}}
	}
	for name, c := range map[string]struct {
		strategy virtv1.VirtualMachineRunStrategy
		vmi      *virtv1.VirtualMachineInstance
		change   func(*virtv1.VirtualMachine)
		want     string
	}{
		"a halted VM":               {virtv1.RunStrategyHalted, nil, nil, ""},
		"a VM that runs by request": {virtv1.RunStrategyManual, nil, nil, ""},
		"one that has run":          {virtv1.RunStrategyRerunOnFailure, nil, func(vm *virtv1.VirtualMachine) { vm.Status.RunStrategy = virtv1.RunStrategyRerunOnFailure }, ""},
		"one that is to run once":   {virtv1.RunStrategyOnce, nil, nil, "with runStrategy Once it starts by itself; stop it first"},
		"one that always runs":      {virtv1.RunStrategyAlways, nil, nil, "renaming a running VM is not allowed: with runStrategy Always"},
		"one that runs":             {virtv1.RunStrategyAlways, phase(virtv1.Running), nil, "its VirtualMachineInstance is in phase Running; stop it first"},
		"one that is being stopped": {virtv1.RunStrategyHalted, phase(virtv1.Running), nil, "renaming a running VM is not allowed"},
		"one whose run is kept":     {virtv1.RunStrategyManual, phase(virtv1.Succeeded), nil, "is kept in phase Succeeded; delete that first"},
		"one that is to be started": {virtv1.RunStrategyManual, nil, func(vm *virtv1.VirtualMachine) {
			vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}
		}, "a start or stop of it is under way"},
		"one whose stop is left": {virtv1.RunStrategyManual, nil, func(vm *virtv1.VirtualMachine) {
			vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StopRequest}}
		}, "under way"},
		"a strategy that nobody knows": {"Sometimes", nil, nil, "runStrategy Sometimes is not acted on"},
		"one that is being deleted":    {virtv1.RunStrategyHalted, nil, func(vm *virtv1.VirtualMachine) { vm.DeletionTimestamp = &metav1.Time{} }, "being deleted"},
		"one of a pool": {virtv1.RunStrategyHalted, nil, func(vm *virtv1.VirtualMachine) {
			vm.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachinePool", Name: "farm", Controller: new(true)}}
		}, "belongs to VirtualMachinePool farm"},
		"one that is just being renamed": {virtv1.RunStrategyHalted, nil, func(vm *virtv1.VirtualMachine) {
			vm.Annotations = map[string]string{rename.AnnotationOrigin: "old/1"}
		}, "still being renamed from old"},
		"a snapshot": {virtv1.RunStrategyHalted, nil, func(vm *virtv1.VirtualMachine) { vm.Status.SnapshotInProgress = new("s") }, "VirtualMachineSnapshot s"},
		"a restore":  {virtv1.RunStrategyHalted, nil, func(vm *virtv1.VirtualMachine) { vm.Status.RestoreInProgress = new("r") }, "VirtualMachineRestore r"},
		"a memory dump": {virtv1.RunStrategyHalted, nil, func(vm *virtv1.VirtualMachine) {
			vm.Status.MemoryDumpRequest = &virtv1.VirtualMachineMemoryDumpRequest{ClaimName: "m"}
		}, "memory dump on claim m"},
		"volumes that are moved": {virtv1.RunStrategyHalted, nil, func(vm *virtv1.VirtualMachine) {
			vm.Annotations = map[string]string{volumemigration.AnnotationNote: "{}"}
		}, "being copied to other claims"},
		"volumes to come": {virtv1.RunStrategyHalted, nil, func(vm *virtv1.VirtualMachine) { vm.Status.VolumeRequests = []virtv1.VirtualMachineVolumeRequest{{}} }, "volume"},
	} {
		t.Run(name, func(t *testing.T) {
			vm := machine()
			vm.Spec.RunStrategy = &c.strategy
			if c.change != nil {
				c.change(vm)
			}
			if got := RefuseRename(vm, c.vmi); c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestANameMustBeFree(t *testing.T) {
	for name, c := range map[string]struct {
		target string
		vm     *virtv1.VirtualMachine
		vmi    *virtv1.VirtualMachineInstance
		want   string
	}{
		"a free name":        {"shop.v2", nil, nil, ""},
		"a name that is not": {"Shop_", nil, nil, "The VM's new name is not valid: "},
		"a name too long":    {strings.Repeat("a", 254), nil, nil, "The VM's new name is not valid: "},
		"a VM's":             {"shop", machine(), nil, "VirtualMachine shop exists"},
		"a VMI's":            {"shop", nil, &virtv1.VirtualMachineInstance{}, "VirtualMachineInstance shop exists; delete it first"},
	} {
		if got := RefuseTarget(c.target, c.vm, c.vmi); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
