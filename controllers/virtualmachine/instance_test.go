package virtualmachine

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"

	"github.com/slipway-vm/slipway/controllers/instancetype"
)

func machine() *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{}
	vm.Name, vm.Namespace, vm.UID, vm.Generation = "web", "prod", "vm-uid", 7
	vm.Spec.Template = &virtv1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web"}
	vm.Spec.Template.Spec.Volumes = []virtv1.Volume{{Name: "root"}}
	return vm
}

func small() *v1beta1.VirtualMachineInstancetypeSpec {
	return &v1beta1.VirtualMachineInstancetypeSpec{
		CPU:    v1beta1.CPUInstancetype{Guest: 2},
		Memory: v1beta1.MemoryInstancetype{Guest: resource.MustParse("1Gi")},
	}
}

func TestInstanceTakesItsTemplateAndInstanceType(t *testing.T) {
	vm := machine()
	vmi, err := instance(parts{
		vm: vm, instancetype: small(), instancetypeRef: instancetype.Reference{Kind: instancetype.KindClusterInstancetype, Name: "u1.small"},
		preference:    &v1beta1.VirtualMachinePreferenceSpec{Devices: &v1beta1.DevicePreferences{PreferredDiskBus: virtv1.DiskBusVirtio}},
		preferenceRef: instancetype.Reference{Kind: instancetype.KindPreference, Name: "linux"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := vmi.Spec.Domain.Memory.Guest.String(); got != "1Gi" {
		t.Errorf("guest memory %s", got)
	}
	if got := vmi.Spec.Domain.CPU.Sockets; got != 2 {
		t.Errorf("%d sockets", got)
	}
	if disks := vmi.Spec.Domain.Devices.Disks; len(disks) != 1 || disks[0].Name != "root" || disks[0].Disk.Bus != virtv1.DiskBusVirtio {
		t.Errorf("the volume without a disk got %+v", disks)
	}
	want := map[string]string{
		virtv1.ClusterInstancetypeAnnotation: "u1.small", virtv1.PreferenceAnnotation: "linux", virtv1.VirtualMachineGenerationAnnotation: "7",
	}
	for key, value := range want {
		if vmi.Annotations[key] != value {
			t.Errorf("annotation %s is %q, want %q", key, vmi.Annotations[key], value)
		}
	}
	if len(vmi.OwnerReferences) != 1 || vmi.OwnerReferences[0].UID != vm.UID {
		t.Errorf("owned by %+v", vmi.OwnerReferences)
	}
}

func TestInstanceKeepsItsFirmwareUUID(t *testing.T) {
	first, err := instance(parts{vm: machine(), instancetype: small()})
	if err != nil {
		t.Fatal(err)
	}
	again, err := instance(parts{vm: machine(), instancetype: small()})
	if err != nil {
		t.Fatal(err)
	}
	other := machine()
	other.UID = "another"
	another, err := instance(parts{vm: other, instancetype: small()})
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := first.Spec.Domain.Firmware.UUID, again.Spec.Domain.Firmware.UUID, another.Spec.Domain.Firmware.UUID
	if a == "" || a != b || a == c {
		t.Errorf("UUIDs %s, %s of one VM and %s of another", a, b, c)
	}
}

func TestInstanceNamesConflictsWithTheInstanceType(t *testing.T) {
	vm := machine()
	vm.Spec.Template.Spec.Domain.CPU = &virtv1.CPU{Cores: 4}
	vm.Spec.Template.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	_, err := instance(parts{vm: vm, instancetype: small()})
	for _, want := range []string{"spec.template.spec.domain.cpu.cores", "spec.template.spec.domain.resources.requests.memory"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestAChangeOfTheTemplateAsksForARestart(t *testing.T) {
	vm := machine()
	vmi, err := instance(parts{vm: vm, instancetype: small()})
	if err != nil {
		t.Fatal(err)
	}
	vmi.Status.Phase = virtv1.Running
	s := &scope{vm: vm, vmi: vmi, now: now}
	vm.Generation = 8
	if Outdated(vm, vmi) || observed(s) != 8 {
		t.Errorf("a change outside the template: outdated %v, observed %d", Outdated(vm, vmi), observed(s))
	}
	vm.Spec.Template.Spec.Hostname = "other"
	s.restart = messageRestartNeeded
	if !Outdated(vm, vmi) || observed(s) != 7 {
		t.Errorf("a change of the template: outdated %v, observed %d", Outdated(vm, vmi), observed(s))
	}
	found := false
	for _, c := range conditions(s) {
		found = found || c.Type == virtv1.VirtualMachineRestartRequired && c.Status == corev1.ConditionTrue
	}
	if !found {
		t.Error("no condition RestartRequired")
	}
}

func TestInstanceBeginsPausedWhereItIsAskedTo(t *testing.T) {
	for _, paused := range []bool{false, true} {
		vmi, err := instance(parts{vm: machine(), paused: paused})
		if err != nil || (vmi.Spec.StartStrategy != nil) != paused || vmi.ShouldStartPaused() != paused {
			t.Errorf("paused %v: %v, start strategy %v", paused, err, vmi.Spec.StartStrategy)
		}
	}
}
