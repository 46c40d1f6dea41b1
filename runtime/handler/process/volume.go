package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenDirectory opens the directory at path as the process sees it under its own root, to
// look up what is in it; symbolic links stay within that root.
func (p *Process) OpenDirectory(path string) (*os.File, error) {
	return p.inRoot(path, unix.O_PATH|unix.O_DIRECTORY)
}
