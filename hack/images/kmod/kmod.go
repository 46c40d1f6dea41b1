// Package kmod changes kernel modules for machines that load many of them under emulation.
package kmod

import (
	"bytes"
	"encoding/binary"
)

// mark is what a module ends with that has a signature, and described is the size in bytes of what tells of the signature before it
// (include/linux/module_signature.h).
const (
	mark      = "~Module signature appended~\n"
	described = 12
)

// Unsigned takes a module's signature away. Debian's kernels check a signature and do not ask for one; to check those of all modules of
// a small guest is two fifths of what an emulated processor does until the guest is up.
func Unsigned(module []byte) []byte {
	rest, ok := bytes.CutSuffix(module, []byte(mark))
	if !ok || len(rest) < described {
		return module
	}
	length := int(binary.BigEndian.Uint32(rest[len(rest)-4:]))
	rest = rest[:len(rest)-described]
	if length > len(rest) {
		return module
	}
	return rest[:len(rest)-length]
}
