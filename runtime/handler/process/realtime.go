package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// realtimePriority is the highest that a pod's processes may take in real time: the least there
// is, which is before all that runs otherwise.
const realtimePriority = 1

// AllowRealtime lets the processes of the pod with uid schedule themselves in real time. Those
// that they start later may, too.
func AllowRealtime(uid types.UID) error {
	// A process that was started during one pass, by another that had not got this yet, is met in
	// the next. Each pass leaves fewer of these, and the last finds none.
	for {
		changed, err := allowListed(uid)
		if changed == 0 || err != nil {
			return err
		}
	}
}

// allowListed does that for the processes that there are now, and returns how many could not.
func allowListed(uid types.UID) (changed int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("listing processes: %w", err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		fresh, err := allowRealtime(pid, uid)
		if err != nil {
			return changed, err
		}
		if fresh {
			changed++
		}
	}
	return changed, nil
}

// allowRealtime says whether it was a process that could not before.
func allowRealtime(pid int, uid types.UID) (bool, error) {
	held, err := hold(pid)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = held.Close() }()
	p, err := Open(pid)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = p.Close() }()
	member, err := p.BelongsTo(uid)
	if gone(err) {
		return false, nil
	}
	if err != nil || !member {
		return false, err
	}
	fresh, err := limit(held, pid, unix.RLIMIT_RTPRIO, unix.Rlimit{Cur: realtimePriority, Max: realtimePriority})
	if err != nil {
		return false, fmt.Errorf("letting process %d run in real time: %w", pid, err)
	}
	return fresh, nil
}

// hold opens a descriptor of the process with number pid (pidfd_open(2)).
func hold(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.EINVAL) { // older kernels say so of a process that ends just now
		err = unix.ESRCH
	}
	if err != nil {
		return nil, fmt.Errorf("holding process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "process "+strconv.Itoa(pid)), nil
}

// limit bounds a resource of the process held, which has or had the number pid, and says whether
// that changed something. Limits are set by number: where another process had the number by then, it gets back
// what it had, and is to be looked at like any other.
func limit(held *os.File, pid, resource int, wanted unix.Rlimit) (bool, error) {
	var before unix.Rlimit
	err := unix.Prlimit(pid, resource, &wanted, &before)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("setting a limit: %w", err)
	}
	// A number is not used again before its process has ended and its parent has taken note of it.
	err = unix.PidfdSendSignal(int(held.Fd()), 0, nil, 0)
	if err == nil {
		return before != wanted, nil
	}
	if !gone(err) {
		return false, fmt.Errorf("asking whether it still runs: %w", err)
	}
	if err := unix.Prlimit(pid, resource, &before, nil); err != nil && !gone(err) {
		return false, fmt.Errorf("taking a limit back: %w", err)
	}
	return true, nil
}

// gone says whether err is of a process that has ended.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }
