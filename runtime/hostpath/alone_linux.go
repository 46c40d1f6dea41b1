package hostpath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// alone waits until no other process serves node storage on this node, and keeps others
// away until release: two handlers may overlap, when one is replaced or its pod was
// deleted by force, and they would work on the same volumes. The lock is the kernel's, which takes it
// from a process that dies.
func alone(ctx context.Context, folder string, log logr.Logger) (release func(), err error) {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, fmt.Errorf("making the driver's folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the driver's lock: %w", err)
	}
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		log.Info("Waiting for the other process that serves node storage on this node", "lock", file.Name())
	}
	locked := make(chan error, 1)
	go func() { locked <- lock(file) }()
	select {
	case <-ctx.Done():
		// The waiting goroutine keeps the file, and ends with the process or when its turn comes.
		go func() { <-locked; file.Close() }() //nolint:errcheck // nothing was written
		return nil, fmt.Errorf("waiting for %s: %w", file.Name(), ctx.Err())
	case err := <-locked:
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
		}
	}
	return func() { file.Close() }, nil //nolint:errcheck // nothing was written
}

// lock waits for the lock on file.
func lock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err //nolint:wrapcheck // the caller names the file
		}
	}
}
