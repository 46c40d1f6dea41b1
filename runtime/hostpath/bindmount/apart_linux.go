package bindmount

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Apart opens a file again, for reading and writing, by a mount of its own that is at no path. What has it open keeps the
// file system, but not the mount that file was found by: that can be unmounted.
func Apart(file *os.File) (*os.File, error) {
	tree, err := unix.OpenTree(int(file.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("making a mount of %s: %w", file.Name(), err)
	}
	defer unix.Close(tree) //nolint:errcheck // nothing was written
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", tree), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s by a mount of its own: %w", file.Name(), err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}
