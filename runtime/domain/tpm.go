package domain

import (
	"path"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/internal/guestid"
)

// HasTPM says whether the VMI's machine has a TPM.
func HasTPM(vmi *v1.VirtualMachineInstance) bool {
	spec := vmi.Spec.Domain.Devices.TPM
	return spec != nil && enabled(spec.Enabled)
}

// keepsTPM says whether the TPM's state outlives the pod.
func keepsTPM(vmi *v1.VirtualMachineInstance) bool {
	return HasTPM(vmi) && requested(vmi.Spec.Domain.Devices.TPM.Persistent)
}

// keepsNVRAM says whether the variables of UEFI outlive the pod.
func keepsNVRAM(vmi *v1.VirtualMachineInstance) bool {
	return bootsEFI(vmi) && requested(vmi.Spec.Domain.Firmware.Bootloader.EFI.Persistent)
}

// tpm adds an emulated TPM 2.0. One whose state is kept has the newer interface (CRB), the
// other the older (TIS), as the API's users know them.
func tpm(in Input, domain *libvirtxml.Domain) error {
	if !HasTPM(in.VMI) {
		return nil
	}
	model, emulator := "tpm-tis", &libvirtxml.DomainTPMBackendEmulator{Version: "2.0"}
	if keepsTPM(in.VMI) {
		model, emulator.PersistentState = "tpm-crb", "yes"
		emulator.Source = &libvirtxml.DomainTPMBackendSource{Dir: &libvirtxml.DomainTPMBackendSourceDir{Path: TPMState(in.VMI, in.StateDir)}}
	}
	domain.Devices.TPMs = []libvirtxml.DomainTPM{{Model: model, Backend: &libvirtxml.DomainTPMBackend{Emulator: emulator}}}
	return nil
}

// Places below the folder of what outlives the pod, the same as KubeVirt's, so that a
// claim that it made is of use.

// TPMState is the folder of the TPM's state.
func TPMState(vmi *v1.VirtualMachineInstance, state string) string {
	return path.Join(state, "swtpm", UUID(vmi), "tpm2")
}

// TPMAuthority is the folder of the authority that vouches for the TPM; empty when that
// ends with the pod.
func TPMAuthority(vmi *v1.VirtualMachineInstance, state string) string {
	if !keepsTPM(vmi) {
		return ""
	}
	return path.Join(state, "swtpm-localca")
}

// NVRAMSuffix ends the name of the file of UEFI's variables.
const NVRAMSuffix = "_VARS.fd"

// NVRAM is the file of UEFI's variables; empty when they end with the pod.
func NVRAM(vmi *v1.VirtualMachineInstance, state string) string {
	if !keepsNVRAM(vmi) {
		return ""
	}
	return path.Join(state, "nvram", fileName(guestid.Name(vmi))+NVRAMSuffix)
}
