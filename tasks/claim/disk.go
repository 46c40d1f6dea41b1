// Package claim is the disk of a PersistentVolumeClaim as a task's pod sees it: where it is,
// and who else uses it.
package claim

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/taskdisk"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Find returns the path of the disk that call works on: the device of a Block claim, or the
// file of a Filesystem claim. param is the parameter that names the claim; its disk must be
// readable, and writable if write says so.
func Find(call *declare.Call, param string, write bool) (string, error) {
	return find(taskdisk.Device, call.Disk, fmt.Sprintf("%s: claim %s", param, call.String(param)), write)
}

func find(device, file, claim string, write bool) (string, error) {
	if info, err := os.Stat(device); err == nil && info.Mode()&os.ModeDevice != 0 {
		return device, allowed(device, write,
			claim+`: user %d may not open its device: let the container runtime give devices to a container's user (device_ownership_from_security_context)`)
	}
	info, err := os.Lstat(file)
	switch {
	case errors.Is(err, os.ErrPermission):
		return "", fmt.Errorf(claim+": "+fsGroupHint, os.Getuid())
	case err != nil:
		return "", fmt.Errorf("%s: its disk is not there: %w; import or create a %s in it first", claim, err, names.DiskFile)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: %s is no regular file", claim, file)
	}
	return file, allowed(file, write, claim+": "+fsGroupHint)
}

const fsGroupHint = `user %d may not use its disk: set podTemplate.securityContext.fsGroup: 107 in the TaskRun or PipelineRun, or make user or group 107 the owner of ` + names.DiskFile

// allowed fails with the words of hint, which has a place for the user's id.
func allowed(path string, write bool, hint string) error {
	flags := os.O_RDONLY
	if write {
		flags = os.O_RDWR
	}
	file, err := os.OpenFile(path, flags, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf(hint+": %w", os.Getuid(), err)
	case err != nil:
		return fmt.Errorf("opening %s: %w", path, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", path, err)
	}
	return nil
}

// QEMU marks what it does with an image file by locks on single bytes of it: those from here
// on tell what it does, those a hundred further what it lets nobody else do.
const (
	lockUsed  = 100
	lockBytes = 200
)

// ErrLocked is returned for a disk that a QEMU process on the same node has open.
var ErrLocked = errors.New("a running QEMU has the disk open; stop the VM that uses it")

// Unlocked returns ErrLocked when a QEMU process on the same node has the file open. Elsewhere,
// and for devices, only the API knows; see Users.
func Unlocked(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("looking for locks of %s: %w", path, err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: lockUsed, Len: lockBytes}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOLCK):
		return nil // a file system without locks; QEMU takes none there either
	case err != nil:
		return fmt.Errorf("looking for locks of %s: %w", path, err)
	case lock.Type != unix.F_UNLCK:
		return ErrLocked
	}
	return nil
}
