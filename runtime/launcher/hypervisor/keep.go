package hypervisor

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"libvirt.org/go/libvirt"

	"github.com/slipway-vm/slipway/internal/names"
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
		if err := addFile(domain, keptSet+i, file); err != nil {
			return err
		}
	}
	return nil
}

// lentSet is the first of the sets of open files that QEMU uses as disks.
const lentSet = 1 << 21

// Lend hands an open file to QEMU, which finds it from then on at the path that is returned, without
// any right to open it. n tells it from others that are lent. It is QEMU's until TakeBack, also while
// libvirtd is away, as long as a disk is on it.
func (h *Hypervisor) Lend(n int, file *os.File) (string, error) {
	domain, _, release, err := h.held()
	if err != nil {
		return "", err
	}
	defer release()
	return lentPath(n), addFile(domain, lentSet+n, file)
}

// TakeBack has QEMU close the file that was lent as n, once no disk is on it. One that QEMU does not have is no error.
func (h *Hypervisor) TakeBack(n int) error {
	domain, _, release, err := h.held()
	if err != nil {
		return err
	}
	defer release()
	_, err = monitor(domain, "remove-fd", map[string]any{"fdset-id": lentSet + n})
	if _, unknown := errors.AsType[refusal](err); err != nil && !unknown {
		return fmt.Errorf("taking an open file back from QEMU: %w", err)
	}
	return nil
}

// lentPath is how QEMU names an open file that it was handed.
func lentPath(n int) string { return path.Join(names.LauncherLentDir, strconv.Itoa(lentSet+n)) }

// addFile hands an open file to QEMU as one of the set.
func addFile(domain *libvirt.Domain, set int, file *os.File) error {
	if _, err := monitor(domain, "add-fd", map[string]any{"fdset-id": set, "opaque": file.Name()}, file); err != nil {
		return fmt.Errorf("handing %s to QEMU: %w", file.Name(), err)
	}
	return nil
}
