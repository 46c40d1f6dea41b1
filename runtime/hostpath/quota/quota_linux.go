// Package quota limits what a directory and all that is made in it may hold, by the project
// quotas of XFS and ext4. The file system must be mounted with them (option prjquota);
// this package does not turn them on.
//
// The kernel's interface is that of quotactl(2) in its XFS form, which ext4 answers, too. Sources:
// the kernel's include/uapi/linux/{dqblk_xfs,quota,fs}.h.
package quota

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// basicBlock is the unit of sizes in the kernel's interface, in bytes.
const basicBlock = 512

// Commands of quotactl, shifted by the kind of quota that they are about.
const (
	projectQuota  = 2
	commandShift  = 8
	xfsCommand    = 'X' << 8
	commandGet    = (xfsCommand|3)<<commandShift | projectQuota
	commandSet    = (xfsCommand|4)<<commandShift | projectQuota
	commandState  = (xfsCommand|8)<<commandShift | projectQuota
	stateVersion  = 1
	stateEnforced = 1 << 5 // limits of projects
)

// limits is the kernel's fs_disk_quota.
type limits struct {
	Version                                      int8
	Flags                                        int8
	Fields                                       uint16
	ID                                           uint32
	BlockHard, BlockSoft, InodeHard, InodeSoft   uint64
	Blocks, Inodes                               uint64
	InodeTimer, BlockTimer                       int32
	InodeWarnings, BlockWarnings                 uint16
	InodeTimerHigh, BlockTimerHigh, RealtimeHigh int8
	_                                            int8
	RealtimeHard, RealtimeSoft, RealtimeBlocks   uint64
	RealtimeTimer                                int32
	RealtimeWarnings                             uint16
	_                                            [10]byte
}

// Values of limits.
const (
	limitsVersion = 1
	limitsProject = 1 << 1
	fieldHard     = 1 << 3 // BlockHard is set
)

// state is the kernel's fs_quota_statv.
type state struct {
	Version int8
	_       uint8
	Flags   uint16
	_       [156]byte
}

// attributes is the kernel's fsxattr.
type attributes struct {
	Flags, ExtentSize, Extents, Project, CopyExtentSize uint32
	_                                                   [8]byte
}

// Requests of ioctl about attributes, and the flag by which what is made in a directory
// belongs to the directory's project.
const (
	getAttributes = 0x801c581f
	setAttributes = 0x401c5820
	inheritFlag   = 0x200
)

// Usage is what a project holds and may hold.
type Usage struct {
	// Bytes is what its files take of the file system, shared blocks in full.
	Bytes int64
	// Limit is the most that they may take, in bytes; 0: as much as there is.
	Limit int64
	// Inodes is the number of its files and directories.
	Inodes int64
}

// Enforced says whether the file system of file, any open file on it, holds projects to
// their limits.
func Enforced(file *os.File) (bool, error) {
	found := state{Version: stateVersion}
	err := control(file, commandState, 0, unsafe.Pointer(&found))
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading whether %s has quotas: %w", file.Name(), err)
	}
	return found.Flags&stateEnforced != 0, nil
}

// absent tells errors that mean "no quotas here" from real ones.
func absent(err error) bool {
	for _, none := range []error{unix.ENOSYS, unix.EOPNOTSUPP, unix.EINVAL, unix.ESRCH, unix.ENOTTY} {
		if errors.Is(err, none) {
			return true
		}
	}
	return false
}

// Of returns what a project of the file system of file holds.
func Of(file *os.File, project uint32) (Usage, error) {
	var found limits
	err := control(file, commandGet, project, unsafe.Pointer(&found))
	if errors.Is(err, unix.ENOENT) {
		return Usage{}, nil // nothing was ever made or limited in it
	}
	if err != nil {
		return Usage{}, fmt.Errorf("reading the quota of project %d: %w", project, err)
	}
	return Usage{Bytes: int64(found.Blocks) * basicBlock, Limit: int64(found.BlockHard) * basicBlock, Inodes: int64(found.Inodes)}, nil
}

// Limit lets a project of the file system of file hold that many bytes, rounded up to 512; 0: as
// much as there is.
func Limit(file *os.File, project uint32, bytes int64) error {
	wanted := limits{
		Version: limitsVersion, Flags: limitsProject, Fields: fieldHard, ID: project,
		BlockHard: uint64((bytes + basicBlock - 1) / basicBlock),
	}
	if err := control(file, commandSet, project, unsafe.Pointer(&wanted)); err != nil {
		return fmt.Errorf("limiting project %d to %d bytes: %w", project, bytes, err)
	}
	return nil
}

// Assign makes dir, an empty directory, and all that will be made in it a part of project.
func Assign(dir *os.File, project uint32) error {
	var found attributes
	if err := attribute(dir, getAttributes, &found); err != nil {
		return fmt.Errorf("reading the project of %s: %w", dir.Name(), err)
	}
	found.Project, found.Flags = project, found.Flags|inheritFlag
	if err := attribute(dir, setAttributes, &found); err != nil {
		return fmt.Errorf("assigning %s to project %d: %w", dir.Name(), project, err)
	}
	return nil
}

// Project returns the project that dir belongs to, 0 when none.
func Project(dir *os.File) (uint32, error) {
	var found attributes
	err := attribute(dir, getAttributes, &found)
	if absent(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the project of %s: %w", dir.Name(), err)
	}
	return found.Project, nil
}

// control asks the file system of file, past the node of its device, which a container may not have.
func control(file *os.File, command uintptr, id uint32, argument unsafe.Pointer) error {
	_, _, code := unix.Syscall6(unix.SYS_QUOTACTL_FD, file.Fd(), command, uintptr(id), uintptr(argument), 0, 0)
	return asError(code)
}

func attribute(file *os.File, request uintptr, argument *attributes) error {
	_, _, code := unix.Syscall(unix.SYS_IOCTL, file.Fd(), request, uintptr(unsafe.Pointer(argument)))
	return asError(code)
}

func asError(code unix.Errno) error {
	if code == 0 {
		return nil
	}
	return code
}
