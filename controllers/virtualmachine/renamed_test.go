package virtualmachine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/guestid"
	"github.com/slipway-vm/slipway/internal/rename"
)

// started is the VMI that vm is started with.
func started(t *testing.T, vm *virtv1.VirtualMachine) *virtv1.VirtualMachineInstance {
	t.Helper()
	vmi, err := instance(parts{vm: vm})
	if err != nil {
		t.Fatal(err)
	}
	return vmi
}

func TestARenamedVMIsTheSameGuest(t *testing.T) {
	for name, change := range map[string]func(*virtv1.VirtualMachine){
		"a VM that says nothing": func(*virtv1.VirtualMachine) {},
		"a VM that says all of it": func(vm *virtv1.VirtualMachine) {
			spec := &vm.Spec.Template.Spec
			spec.Domain.Firmware = &virtv1.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223", Serial: "S1"}
			nic := *virtv1.DefaultMasqueradeNetworkInterface()
			nic.MacAddress = "02:00:00:00:00:01"
			spec.Domain.Devices.Interfaces = []virtv1.Interface{nic}
			spec.Networks = []virtv1.Network{*virtv1.DefaultPodNetwork()}
		},
		"a VM on a bridge": func(vm *virtv1.VirtualMachine) {
			spec := &vm.Spec.Template.Spec
			spec.Domain.Devices.Interfaces = []virtv1.Interface{*virtv1.DefaultBridgeNetworkInterface()}
			spec.Networks = []virtv1.Network{*virtv1.DefaultPodNetwork()}
		},
		"a VM without a network": func(vm *virtv1.VirtualMachine) {
			vm.Spec.Template.Spec.Domain.Devices.AutoattachPodInterface = new(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			old := machine()
			change(old)
			before := started(t, old)
			next := renamed(old, "shop")
			next.UID = "another"
			after := started(t, next)
			if after.Spec.Domain.Firmware.UUID != before.Spec.Domain.Firmware.UUID || after.Spec.Domain.Firmware.Serial != before.Spec.Domain.Firmware.Serial {
				t.Errorf("the firmware is %+v, was %+v", after.Spec.Domain.Firmware, before.Spec.Domain.Firmware)
			}
			if guestid.Name(after) != "web" {
				t.Errorf("the guest is known as %s", guestid.Name(after))
			}
			nics := after.Spec.Domain.Devices.Interfaces
			if len(nics) != len(before.Spec.Domain.Devices.Interfaces) || len(nics) != len(after.Spec.Networks) {
				t.Fatalf("the interfaces are %+v on %+v", nics, after.Spec.Networks)
			}
			for i, was := range before.Spec.Domain.Devices.Interfaces {
				want := was.MacAddress
				if want == "" && was.Bridge == nil {
					want = guestid.MAC("prod", "web", was.Name).String()
				}
				if nics[i].MacAddress != want {
					t.Errorf("interface %s has %s, want %s", was.Name, nics[i].MacAddress, want)
				}
			}
		})
	}
}

func TestARenamedVMHasWhatTheOldOneHad(t *testing.T) {
	old := machine()
	old.Labels = map[string]string{"team": "a"}
	old.Annotations = map[string]string{
		"note": "kept", rename.AnnotationTarget: "shop", rename.AnnotationFailure: "other: why", corev1.LastAppliedConfigAnnotation: "{}",
	}
	old.OwnerReferences = []metav1.OwnerReference{{Kind: "Application", Name: "shop", UID: "app"}}
	next := renamed(old, "shop")
	origin, ok := rename.OriginOf(next)
	if !ok || origin != (rename.Origin{Name: "web", UID: "vm-uid"}) {
		t.Errorf("it is said to come from %+v, %v", origin, ok)
	}
	if len(next.Annotations) != 2 || next.Annotations["note"] != "kept" || next.Labels["team"] != "a" || len(next.OwnerReferences) != 1 {
		t.Errorf("got %+v", next.ObjectMeta)
	}
	if next.Name != "shop" || next.Namespace != "prod" || next.UID != "" || next.ResourceVersion != "" {
		t.Errorf("it is %s/%s, uid %q", next.Namespace, next.Name, next.UID)
	}
	if old.Spec.Template.Spec.Domain.Firmware != nil || old.Annotations[rename.AnnotationTarget] != "shop" {
		t.Error("the old VM was changed")
	}
}

// A guest keeps its first name over many renames, and loses the note of it when it gets that back.
func TestAGuestKeepsItsFirstName(t *testing.T) {
	second := renamed(machine(), "shop")
	third := renamed(second, "store")
	if got := third.Spec.Template.ObjectMeta.Annotations[guestid.AnnotationName]; got != "web" {
		t.Errorf("after two renames the guest is known as %q", got)
	}
	back := renamed(third, "web")
	if noted, found := back.Spec.Template.ObjectMeta.Annotations[guestid.AnnotationName]; found {
		t.Errorf("the guest that has its name back is known as %q", noted)
	}
}
