package protocol

import "time"

// MemoryDump has the guest's memory written to a file in the folder that comes with it.
type MemoryDump struct {
	// Volume is the VMI's, on whose claim the folder is.
	Volume string `json:"volume"`
	// File is the name of the file. One that was asked for before is not written again.
	File string `json:"file"`
}

// Dump is how the writing of a guest's memory to a file goes on, or ended.
type Dump struct {
	Volume string    `json:"volume"`
	File   string    `json:"file"`
	Began  time.Time `json:"began"`
	// Ended is when the file was whole, or the attempt had failed; nil while it goes on.
	Ended *time.Time `json:"ended,omitempty"`
	// Error says why it failed; there is no file then.
	Error string `json:"error,omitempty"`
}
