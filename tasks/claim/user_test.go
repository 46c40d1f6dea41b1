package claim

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// asUser runs what with the file rights of the user; only this thread has them.
func asUser(t *testing.T, user int, what func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, uintptr(user), 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	defer unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0) //nolint:errcheck // it returns the user before and no error
	what()
}
