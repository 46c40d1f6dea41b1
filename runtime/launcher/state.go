package launcher

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/disks"
)

// prepareState makes the places of what the guest leaves in its TPM and in UEFI's
// variables. libvirt fills them at the first start and finds them at the next.
func (m *machine) prepareState(vmi *v1.VirtualMachineInstance) error {
	dir := m.options.StateDir
	if nvram := domain.NVRAM(vmi, dir); nvram != "" {
		if err := os.MkdirAll(filepath.Dir(nvram), 0o770); err != nil {
			return fmt.Errorf("making the folder of UEFI's variables: %w", err)
		}
	}
	if !domain.HasTPM(vmi) {
		return nil
	}
	return m.hv.ConfigureTPM(domain.TPMAuthority(vmi, dir))
}

// kernel are the files of a kernel boot, which came as open files like container disks.
func (m *machine) kernel() domain.Kernel {
	path := func(name string) string {
		if m.images[name] == nil {
			return ""
		}
		return disks.OpenPath(m.images[name])
	}
	return domain.Kernel{Kernel: path(names.KernelBootKernel), Initrd: path(names.KernelBootInitrd)}
}
