package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/internal/dedicated"
	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/processors"
)

// findProcessors looks which processors the pod has for itself. Another number of them than it
// asked for means that the kubelet gave it none of its own: pinned to those, the guest would
// share them with every other that is.
func (m *machine) findProcessors(vmi *v1.VirtualMachineInstance) error {
	if !dedicated.Asked(vmi) || m.processors != nil { // known from a start that had to wait
		return nil
	}
	found, err := processors.Own("/sys")
	if err != nil {
		return err
	}
	want := dedicated.CPUs(vmi, int64(domain.VCPUs(vmi))) //nolint:gosec // admission bounds it
	if int64(len(found)) != want {
		return fmt.Errorf("spec.domain.cpu.dedicatedCpuPlacement: the pod may run on %d of the node's processors and has none of the %d that it needs for itself; "+
			"the node's kubelet needs the CPU manager policy static (is the node's label cpumanager right?)", len(found), want)
	}
	m.processors = found
	return nil
}

// stepAside leaves the guest's processors to the guest: where the emulator has one of its own,
// that is for the launcher and libvirt too. A guest in real time would let neither have its turn.
func (m *machine) stepAside(spec *libvirtxml.Domain) {
	if spec.CPUTune == nil || spec.CPUTune.EmulatorPin == nil {
		return
	}
	cpu, err := strconv.Atoi(spec.CPUTune.EmulatorPin.CPUSet)
	if err == nil {
		err = processors.Confine("/proc", cpu)
	}
	if err != nil {
		m.log.Warn("Failed to leave the guest's processors to the guest; the launcher and libvirt may run on them", "err", err)
	}
}

// checkTables says which key a Secret lacks that is to have a table of the firmware's in it;
// QEMU would name a path in the pod. secrets is where the Secrets are mounted.
func checkTables(vmi *v1.VirtualMachineInstance, secrets string) error {
	for _, table := range domain.ACPITables(vmi) {
		_, err := os.Stat(filepath.Join(secrets, table.Volume, table.File))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the Secret of volume %s has no key %s, in which spec.domain.firmware.acpi needs the table: add it", table.Volume, table.File)
		}
		if err != nil {
			return fmt.Errorf("looking for the table in the Secret of volume %s: %w", table.Volume, err)
		}
	}
	return nil
}
