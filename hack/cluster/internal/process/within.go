package process

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Within replaces this process by a program that sees one folder in the place of
// another, in a mount namespace of its own. The root's mount only takes mounts
// from outside there; mounts that are shared on their own, such as the node's
// folder, go on passing both ways.
func Within(source, target string, command []string) error {
	for _, dir := range []string{source, target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
	}
	runtime.LockOSThread() // the namespace is the thread's until the program replaces all threads
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keeping mounts from the machine: %w", err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("showing %s at %s: %w", source, target, err)
	}
	if err := unix.Exec(command[0], command, os.Environ()); err != nil {
		return fmt.Errorf("starting %s: %w", command[0], err)
	}
	return nil
}
