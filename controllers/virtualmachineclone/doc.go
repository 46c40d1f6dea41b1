// Package virtualmachineclone makes a second virtual machine of one that there is, or of a snapshot of one.
//
// A clone takes a VirtualMachineSnapshot, unless it is told of one, and has a VirtualMachineRestore make the new VM of it. What a
// guest is known by, such as its addresses, is not the new one's: a restore's patches say so. Both are named by the clone's
// uid and go once the new VM has its disks, so that whoever goes on after a controller was killed finds what was done.
package virtualmachineclone
