package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
	if err := adoptState(vmi, dir); err != nil {
		return err
	}
	if !domain.HasTPM(vmi) {
		return nil
	}
	return m.hv.ConfigureTPM(domain.TPMAuthority(vmi, dir))
}

// adoptState takes over what is in dir under another UUID or name, as after a restore to another VM.
func adoptState(vmi *v1.VirtualMachineInstance, dir string) error {
	if nvram := domain.NVRAM(vmi, dir); nvram != "" {
		if err := adopt(nvram, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), domain.NVRAMSuffix) }); err != nil {
			return fmt.Errorf("taking over UEFI's variables: %w", err)
		}
	}
	if domain.TPMAuthority(vmi, dir) == "" { // nothing is kept
		return nil
	}
	if err := adopt(filepath.Dir(domain.TPMState(vmi, dir)), fs.DirEntry.IsDir); err != nil {
		return fmt.Errorf("taking over the state of the TPM: %w", err)
	}
	return nil
}

// adopt renames a neighbour of path to path where nothing is there: the claim is the VM's, so all that is on it is. Of several
// it is the one that was changed last. It may be repeated.
func adopt(path string, suits func(fs.DirEntry) bool) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err //nolint:wrapcheck // it says what and where
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // it says what and where
	}
	var newest fs.FileInfo
	for _, entry := range entries {
		if !suits(entry) {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return err //nolint:wrapcheck // it says what and where
		}
		if newest == nil || info.ModTime().After(newest.ModTime()) {
			newest = info
		}
	}
	if newest == nil {
		return nil
	}
	return os.Rename(filepath.Join(filepath.Dir(path), newest.Name()), path) //nolint:wrapcheck // it says what and where
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
