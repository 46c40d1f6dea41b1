package hostdisk

import (
	"math"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"
)

// What the field's stack bears where nothing is said.
const (
	defaultTolerance = 10
	defaultReserve   = 128 << 10
)

// Limits are what a file is held to.
type Limits struct {
	// Tolerance is by how many percent of its capacity a file may be less, where the file system has not so much.
	Tolerance int64
	// Reserve is how many bytes of the file system files leave free.
	Reserve uint64
}

// LimitsOf are those that the KubeVirt object names, and else the field's own. What is no percentage, or would bear a file of
// nothing, counts as not said.
func LimitsOf(developer *v1.DeveloperConfiguration) Limits {
	limits := Limits{Tolerance: defaultTolerance, Reserve: defaultReserve}
	if developer == nil {
		return limits
	}
	if percent := developer.LessPVCSpaceToleration; percent > 0 && percent < 100 {
		limits.Tolerance = int64(percent)
	}
	if bytes := developer.MinimumReservePVCBytes; bytes > 0 {
		limits.Reserve = bytes
	}
	return limits
}

// available is how many bytes of a file system files may take.
func (l Limits) available(stat unix.Statfs_t) int64 {
	free := stat.Bavail * uint64(stat.Bsize)
	if free <= l.Reserve {
		return 0
	}
	return int64(min(free-l.Reserve, math.MaxInt64))
}
