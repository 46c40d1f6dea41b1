package hypervisor

import (
	"encoding/json"
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
		command, err := json.Marshal(map[string]any{"execute": "add-fd", "arguments": map[string]any{"fdset-id": keptSet + i, "opaque": file.Name()}})
		if err != nil {
			return fmt.Errorf("writing a command to QEMU: %w", err)
		}
		answer, _, err := domain.QemuMonitorCommandWithFiles(string(command), []os.File{*file}, 0)
		if err != nil {
			return fmt.Errorf("handing %s to QEMU: %w", file.Name(), plain(err))
		}
		var refused struct {
			Error *struct {
				Description string `json:"desc"`
			} `json:"error"`
		}
		if err := json.Unmarshal([]byte(answer), &refused); err != nil {
			return fmt.Errorf("handing %s to QEMU: it answered %q: %w", file.Name(), answer, err)
		}
		if refused.Error != nil {
			return fmt.Errorf("handing %s to QEMU: %s", file.Name(), refused.Error.Description)
		}
	}
	return nil
}
