package hypervisor

import (
	"encoding/json"
	"fmt"
	"os"

	"libvirt.org/go/libvirt"
)

// dumpFile is QEMU's name for the open file to which it writes the guest's memory.
const dumpFile = "memory-dump"

// dumpEvent is what QEMU tells at the end of a dump.
const dumpEvent = "DUMP_COMPLETED"

// How a dump ends, in QEMU's words.
const (
	dumpCompleted = "completed"
	dumpFailed    = "failed"
	dumpNone      = "none"
)

// DumpMemory has QEMU write the guest's memory to file, as an ELF core. It returns once QEMU has
// begun; the guest stands still until MemoryDumped tells that it has ended. It goes by QEMU's own
// command: libvirt's call would send all through a process of its own.
func (h *Hypervisor) DumpMemory(file *os.File) error {
	domain, _, release, err := h.held()
	if err != nil {
		return err
	}
	defer release()
	if _, err := monitor(domain, "getfd", map[string]any{"fdname": dumpFile}, file); err != nil {
		return fmt.Errorf("handing the file of the dump to QEMU: %w", err)
	}
	arguments := map[string]any{"paging": false, "protocol": "fd:" + dumpFile, "detach": true}
	if _, err := monitor(domain, "dump-guest-memory", arguments); err != nil {
		return fmt.Errorf("dumping the guest's memory: %w", err)
	}
	return nil
}

// MissedDump looks whether the dump that was begun has ended while nobody listened, and why it
// failed, which is empty for one that did not.
func (h *Hypervisor) MissedDump() (ended bool, failure string, err error) {
	domain, _, release, err := h.held()
	if err != nil {
		return false, "", err
	}
	defer release()
	answer, err := monitor(domain, "query-dump", nil)
	if err != nil {
		return false, "", fmt.Errorf("asking QEMU for the dump: %w", err)
	}
	var result dumpResult
	if err := json.Unmarshal(answer, &result); err != nil {
		return false, "", fmt.Errorf("asking QEMU for the dump: %w", err)
	}
	switch result.Status {
	case dumpCompleted:
		return true, "", nil
	case dumpFailed, dumpNone:
		return true, "QEMU did not write it; the reason was told while libvirtd was away", nil
	}
	return false, "", nil
}

type dumpResult struct {
	Status string `json:"status"`
}

// subscribeDumps asks for the ends of dumps.
func (h *Hypervisor) subscribeDumps(conn *libvirt.Connect) error {
	_, err := conn.DomainQemuMonitorEventRegister(nil, dumpEvent, func(_ *libvirt.Connect, _ *libvirt.Domain, event *libvirt.DomainQemuMonitorEvent) {
		h.events <- Event{Kind: MemoryDumped, Detail: dumpFailure(event.Details)}
	}, 0)
	if err != nil {
		return fmt.Errorf("asking libvirt for the ends of memory dumps: %w", err)
	}
	return nil
}

// dumpFailure reads from QEMU's event why a dump failed; empty for one that did not.
func dumpFailure(details string) string {
	var event struct {
		Result dumpResult `json:"result"`
		Error  string     `json:"error"`
	}
	err := json.Unmarshal([]byte(details), &event)
	switch {
	case err != nil:
		return fmt.Sprintf("QEMU told its end as %q: %v", details, err)
	case event.Error != "":
		return event.Error
	case event.Result.Status != dumpCompleted:
		return "QEMU ended it as " + event.Result.Status
	}
	return ""
}
