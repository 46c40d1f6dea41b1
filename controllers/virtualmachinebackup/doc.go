// Package virtualmachinebackup has the disks of running virtual machines written to claims, by VirtualMachineBackups.
//
// A backup is asked for on the VMI, one at a time; its node's virt-handler does it, and tells of it in the VMI's status.
// What is asked for goes when the backup is over or deleted, and with it all that is not whole. A
// VirtualMachineBackupTracker keeps the checkpoint from which its next backup goes on.
package virtualmachinebackup
