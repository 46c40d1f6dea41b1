// Package overhead says how much memory a virtual machine needs beyond its guest's own. The parts
// are bounds of what a launcher pod's processes were measured to use; program text counts once per
// node, but is charged to the first pod that reads it, so it is included. Tests of runtime/launcher
// read the processes' PSS and fail when a part is no bound any more.
package overhead

// Parts, in bytes.
const (
	// Launcher is virt-launcher and libvirt's per-VM daemon: measured are some 15 to 18 and 24 MiB.
	Launcher = 45 << 20
	// QEMU is its heap, device models and firmware.
	QEMU = 60 << 20
	// PerCPU are stacks and per-CPU state of each virtual CPU.
	PerCPU = 8 << 20
	// Graphics is the memory of a graphics device.
	Graphics = 16 << 20
	// Emulation are, without KVM, the tables of the buffer of translated code.
	Emulation = 8 << 20
	// AgentProbe is the process that the runtime starts in the pod for each probe through the guest's
	// agent: 4 MiB were measured; some runtimes copy themselves, too, which takes up to 12.
	AgentProbe = 16 << 20
	// TPM is an emulated TPM's process: 8 MiB were measured.
	TPM = 12 << 20
	// Filesystem is the process that serves one of the guest's filesystems: 2 MiB were
	// measured; it grows with the number of files that the guest knows.
	Filesystem = 12 << 20
	// Limited is for a pod that is held to what it requests: there the kernel's own memory and the
	// page cache in use, which are the pod's too, have no other room.
	Limited = 100 << 20
	// pageTableShare is the part of the guest's memory that its page tables need.
	pageTableShare = 512
)

// Goals of the project for what is neither guest nor QEMU: virt-launcher and libvirt's daemon,
// in bytes.
const (
	// First is for the first virtual machine of a node.
	First = 45 << 20
	// Further is for each one more.
	Further = 30 << 20
)

// Bounds of QEMU's buffer of translated code, in bytes. Left alone it is a quarter of the guest's
// RAM. Under 64 MiB a whole distribution translates its code again and again while it boots (a
// third more CPU at 32); over that nothing is gained.
const (
	minTranslation   = 32 << 20
	maxTranslation   = 64 << 20
	translationShare = 8
)

// Machine is what decides how much a virtual machine needs.
type Machine struct {
	// Guest is the guest's memory in bytes, VCPUs the number of its processors.
	Guest, VCPUs int64
	// Graphics says that it has a screen, TPM that it has an emulated TPM, KVM that it is not emulated,
	// Limited that its pod is of the class Guaranteed.
	Graphics, TPM, KVM, Limited bool
	// AgentProbes is the number of probes through the guest's agent.
	AgentProbes int64
	// Filesystems is the number of folders that the guest mounts.
	Filesystems int64
}

// Bytes is the overhead of all processes of the machine's pod.
func (m Machine) Bytes() int64 {
	bytes := m.QEMUBytes() + m.BesideQEMUBytes()
	if m.Limited {
		bytes += Limited
	}
	return bytes
}

// BesideQEMUBytes is what the pod's processes need that are not QEMU.
func (m Machine) BesideQEMUBytes() int64 {
	bytes := Launcher + AgentProbe*m.AgentProbes + Filesystem*m.Filesystems
	if m.TPM {
		bytes += TPM
	}
	return bytes
}

// QEMUBytes is what QEMU needs beyond the guest's memory.
func (m Machine) QEMUBytes() int64 {
	bytes := m.Guest/pageTableShare + QEMU + PerCPU*m.VCPUs
	if m.Graphics {
		bytes += Graphics
	}
	if !m.KVM {
		bytes += Emulation + TranslationBuffer(m.Guest)
	}
	return bytes
}

// TranslationBuffer is the size of QEMU's buffer of translated code for a guest with so much
// memory: an eighth of it within bounds.
func TranslationBuffer(guest int64) int64 {
	return min(max(guest/translationShare, minTranslation), maxTranslation)
}
