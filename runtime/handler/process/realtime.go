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

// allowRealtime says whether it was the process that could not before.
func allowRealtime(pid int, uid types.UID) (bool, error) {
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
	limit, before := unix.Rlimit{Cur: realtimePriority, Max: realtimePriority}, unix.Rlimit{}
	err = unix.Prlimit(pid, unix.RLIMIT_RTPRIO, &limit, &before)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("letting process %d run in real time: %w", pid, err)
	}
	return before != limit, nil
}

// gone says whether err is of a process that has ended.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }
