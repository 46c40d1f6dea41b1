// Package virtualmachinesnapshot keeps what virtual machines were at a moment: their definition and, by
// VolumeSnapshots, their disks and what they keep beside them, the state of a TPM and of UEFI.
//
// A snapshot has a VirtualMachineSnapshotContent, which holds the definition and names a VolumeSnapshot for each
// disk. While it is taken, the VM is locked by its status.snapshotInProgress and a finalizer; file systems of a running guest stand
// still. What was reached is read from the objects themselves, past the caches, in every pass: whoever goes on after
// a controller was killed finds all that was done.
package virtualmachinesnapshot
