package hypervisor

import (
	"fmt"
	"os"
)

// keptSet is the first of the sets of open files in QEMU that are kept there for others' sake;
// libvirt counts its own from 0.
const keptSet = 1 << 20

// Keep hands open files to QEMU, which has them open from then on for as long as libvirt does not
// leave it. What a file keeps away from others stays away until QEMU itself has ended, also when
// the launcher ends first.
func (h *Hypervisor) Keep(files []*os.File) error {
	if len(files) == 0 {
		return nil
	}
	domain, _, release, err := h.held()
	if err != nil {
		return err
	}
	defer release()
	for i, file := range files {
		_, err := monitor(domain, "add-fd", map[string]any{"fdset-id": keptSet + i, "opaque": file.Name()}, file)
		if err != nil {
			return fmt.Errorf("handing %s to QEMU: %w", file.Name(), err)
		}
	}
	return nil
}
