package importer

import (
	"runtime/debug"

	"github.com/slipway-vm/slipway/internal/resident"
)

// memoryLimit is what the garbage collector keeps the importer under: a decoder's largest
// window and the buffers around it, with room to collect. The pod's limit is 128 MiB, of
// which the program's own pages take what is left.
const memoryLimit = 96 << 20

// LimitMemory keeps an import within its pod: an import needs few of the program's pages
// that its start touched.
func LimitMemory() error {
	debug.SetMemoryLimit(memoryLimit)
	return resident.Drop()
}
