package transfer

import "math"

// Scratch is the most bytes that an image of a disk of size bytes may have when it comes as a stream, and so what the import
// of it takes beside the disk: tables, and what the disk no longer needs, are less than the disk itself, but for small ones.
func Scratch(size int64) int64 {
	const least = 64 << 20
	if size > (math.MaxInt64-least)/2 {
		return math.MaxInt64
	}
	return 2*size + least
}
