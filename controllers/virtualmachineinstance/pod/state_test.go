package pod

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

func TestStateIsKeptWhereItIsAskedFor(t *testing.T) {
	yes, no := true, false
	efi := func(persistent *bool) *virtv1.Firmware {
		return &virtv1.Firmware{Bootloader: &virtv1.Bootloader{EFI: &virtv1.EFI{Persistent: persistent}}}
	}
	for name, c := range map[string]struct {
		tpm      *virtv1.TPMDevice
		firmware *virtv1.Firmware
		want     bool
	}{
		"nothing asked for":                {},
		"a TPM that forgets":               {tpm: &virtv1.TPMDevice{}},
		"a TPM that remembers":             {tpm: &virtv1.TPMDevice{Persistent: &yes}, want: true},
		"a TPM that is switched off":       {tpm: &virtv1.TPMDevice{Enabled: &no, Persistent: &yes}},
		"UEFI that forgets":                {firmware: efi(nil)},
		"UEFI that remembers":              {firmware: efi(&yes), want: true},
		"a BIOS, which has nothing of it":  {firmware: &virtv1.Firmware{Bootloader: &virtv1.Bootloader{BIOS: &virtv1.BIOS{}}}},
		"both, of which one is to be kept": {tpm: &virtv1.TPMDevice{Persistent: &no}, firmware: efi(&yes), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &virtv1.VirtualMachineInstance{}
			vmi.Spec.Domain.Devices.TPM, vmi.Spec.Domain.Firmware = c.tpm, c.firmware
			if got := KeepsState(vmi); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestStateBelongsToTheVMOrElseToTheVMI(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "win", Namespace: "default", UID: "of-the-vmi"}}
	claim := StateClaim(vmi, "")
	if owner := claim.OwnerReferences[0]; owner.UID != "of-the-vmi" || claim.Spec.StorageClassName != nil {
		t.Errorf("a VMI of its own: owner %+v, class %v", owner, claim.Spec.StorageClassName)
	}
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "win", UID: "of-the-vm"}}
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)}
	claim = StateClaim(vmi, "fast")
	if owner := claim.OwnerReferences[0]; owner.UID != "of-the-vm" || *claim.Spec.StorageClassName != "fast" {
		t.Errorf("a VM's: owner %+v, class %v", owner, claim.Spec.StorageClassName)
	}
	set := &virtv1.VirtualMachineInstanceReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "set", UID: "of-the-set"}}
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, virtv1.VirtualMachineInstanceReplicaSetGroupVersionKind)}
	if owner := StateClaim(vmi, "").OwnerReferences[0]; owner.UID != "of-the-vmi" {
		t.Errorf("one of a replica set's: owner %+v", owner)
	}
	if claim.GenerateName != "persistent-state-for-win-" || claim.Labels["persistent-state-for"] != "win" {
		t.Errorf("named %s, labelled %v", claim.GenerateName, claim.Labels)
	}
}
