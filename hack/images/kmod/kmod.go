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

// Split returns a module without its signature, and the signature with all that tells of it, nil for none: both behind each other are the
// module again. Debian's kernels check a signature, and ask for one only under Secure Boot; to check those of all modules of a small guest
// is two fifths of what an emulated processor does until the guest is up.
func Split(module []byte) (unsigned, signature []byte) {
	rest, ok := bytes.CutSuffix(module, []byte(mark))
	if !ok || len(rest) < described {
		return module, nil
	}
	length := int(binary.BigEndian.Uint32(rest[len(rest)-4:]))
	if end := len(rest) - described - length; end >= 0 {
		return module[:end], module[end:]
	}
	return module, nil
}
