package protocol

import "time"

// Part is a process of a launcher pod, by the name that users know it by.
type Part string

// Parts.
const (
	PartQEMU     Part = "QEMU"
	PartLibvirt  Part = "libvirt"
	PartLauncher Part = "virt-launcher"
)

// Health is how the parts of a virtual machine are at this moment.
type Health struct {
	// Silent is the part that has not answered yet what it was asked; nil when all have. It is
	// the one that keeps others from being heard, where several are silent.
	Silent *Silence `json:"silent,omitempty"`
}

// Silence is that a part does not answer.
type Silence struct {
	Part Part `json:"part"`
	// Since is when the first question was asked that has no answer yet.
	Since time.Time `json:"since"`
}
